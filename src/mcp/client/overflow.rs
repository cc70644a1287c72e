//! Texts that are too long for a model are saved in a file, whose path the model gets.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::name::Name;
use parking_lot::Mutex;

/// A folder for long texts. By default, a temporary one is created when it is needed, is readable only by its owner,
/// and is deleted when this value is dropped.
#[derive(Debug, Default)]
pub(crate) struct Overflow {
    chosen: Option<PathBuf>,
    made: Mutex<Option<PathBuf>>,
}

impl Overflow {
    pub(crate) fn in_folder(folder: Option<PathBuf>) -> Self {
        Self { chosen: folder, made: Mutex::default() }
    }

    /// The text, or its beginning with a note that contains the path of the complete text.
    pub(crate) async fn fit(self: &Arc<Self>, server: &Name, text: Arc<str>, limit: usize) -> Arc<str> {
        if text.len() <= limit {
            return text;
        }
        let (overflow, server, whole) = (Arc::clone(self), Arc::clone(server), Arc::clone(&text));
        let writing = tokio::task::spawn_blocking(move || overflow.keep(&server, &whole));
        let kept = writing.await.unwrap_or_else(|failed| Err(io::Error::other(failed)));
        let shown = &text[..text.floor_char_boundary(limit)];
        let place = match kept {
            Ok(path) => format!("the whole text is in the file {}", path.display()),
            Err(error) => format!("the rest is lost, because it could not be written: {error}"),
        };
        format!("{shown}\n[cut: these are the first {} of {} bytes; {place}]", shown.len(), text.len()).into()
    }

    fn keep(&self, server: &str, text: &str) -> io::Result<PathBuf> {
        let server: String = server.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let path = self.folder()?.join(format!("{server}-{}.txt", uuid::Uuid::new_v4()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&path)?.write_all(text.as_bytes())?;
        Ok(path)
    }

    fn folder(&self) -> io::Result<PathBuf> {
        if let Some(chosen) = &self.chosen {
            fs::create_dir_all(chosen)?;
            return Ok(chosen.clone());
        }
        let mut made = self.made.lock();
        if let Some(folder) = &*made {
            return Ok(folder.clone());
        }
        let folder = std::env::temp_dir().join(format!("agentouto-mcp-{}", uuid::Uuid::new_v4()));
        create_private(&folder)?;
        *made = Some(folder.clone());
        Ok(folder)
    }
}

impl Drop for Overflow {
    fn drop(&mut self) {
        let made = self.made.get_mut();
        if let Some(folder) = made
            && let Err(error) = fs::remove_dir_all(&*folder)
        {
            tracing::warn!(folder = %folder.display(), %error, "could not remove a folder of long texts");
        }
    }
}

fn create_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_long_text_is_cut_between_characters_and_kept_whole_in_a_private_file() {
        let overflow = Arc::new(Overflow::default());
        let text: Arc<str> = "한글".repeat(100).into();
        let cut = overflow.fit(&"files".into(), Arc::clone(&text), 100).await;
        let (shown, note) =
            cut.split_once("\n[cut: these are the first 99 of 600 bytes; the whole text is in the file ").unwrap();
        assert_eq!(shown, &text[..99]);
        let path = PathBuf::from(note.strip_suffix(']').unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), &*text);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        }
        drop(overflow);
        assert!(!path.parent().unwrap().exists());
    }

    #[tokio::test]
    async fn a_short_text_stays_and_a_folder_that_cannot_be_used_is_told() {
        let nowhere = Arc::new(Overflow::in_folder(Some("/dev/null/nowhere".into())));
        assert_eq!(&*nowhere.fit(&"files".into(), "short".into(), 5).await, "short");
        let cut = nowhere.fit(&"files".into(), "longer".into(), 5).await;
        assert!(cut.contains("first 5 of 6 bytes; the rest is lost, because it could not be written: "), "{cut}");
    }
}

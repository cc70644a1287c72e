//! The atomic replacement of a file: all of the new content, or the old file as it was.
//!
//! The content goes to a temporary file in the same directory, and to the disk, and takes the name then. The file that
//! had the name is looked at once more in that step: on Linux and macOS the two files change places, so what was
//! replaced is known for certain, and is put back if it is not the version that was expected. Where the file system
//! cannot do that, and on Windows, it is looked at immediately before.
//!
//! This step is taken under a lock of the directory that holds for all processes which use these tools, where the file
//! system has such locks.

use std::ffi::OsStr;
use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Write as _};
use std::time::Duration;

use crate::tools::files::pace::Pace;
use crate::tools::files::root::Place;
use crate::tools::files::version::{Version, version_of};

/// The number of bytes that are written between two pauses.
const PIECE: usize = 1024 * 1024;
const TEMPORARY_PREFIX: &str = ".agentouto-";
const TEMPORARY_SUFFIX: &str = ".tmp";
/// The temporary name of the file that is about to be replaced under the lock of its directory. Without the lock, what
/// has this name was left by a process that was killed.
const TEMPORARY: &str = ".agentouto-swap.tmp";
/// The time between two attempts to get the lock of a directory.
const LOCK_EVERY: Duration = Duration::from_millis(1);

/// The file that is expected at the place.
pub(super) enum Expected<'a> {
    /// There is none.
    Nothing,
    File(&'a Version, &'a Metadata),
}

/// The reason for which nothing was replaced.
pub(super) enum NotReplaced {
    /// Another file is at the place, or none.
    Changed,
    Failed(io::Error),
}

impl From<io::Error> for NotReplaced {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Writes a file, with the rights of the file that it replaces. If the future is dropped, the old file stays.
pub(super) async fn replace(
    place: &Place,
    content: &[u8],
    expected: Expected<'_>,
    pace: &mut Pace<'_>,
) -> Result<(), NotReplaced> {
    let mut temporary = Temporary::create(place, matches!(expected, Expected::File(..)))?;
    let mut written = 0;
    for piece in content.chunks(PIECE) {
        temporary.file.write_all(piece)?;
        written += piece.len() as u64;
        pace.pause("bytes written", written, Some(content.len() as u64)).await;
    }
    if let Expected::File(_, metadata) = expected {
        keep_rights(&temporary.file, metadata)?;
    }
    // Otherwise a file system may know the new name before the content, and a power failure leaves an empty file.
    temporary.file.sync_all()?;
    let lock = lock(place).await;
    temporary.link(lock.is_some())?;
    match expected {
        Expected::Nothing => temporary.take_free_name(),
        Expected::File(version, _) => temporary.take_name_of(version),
    }
}

/// Waits for the lock of a directory, which is free again when the file is dropped. `None` where there are no such
/// locks.
async fn lock(place: &Place) -> Option<File> {
    let directory = place.dir.open(".").ok()?.into_std();
    loop {
        match directory.try_lock() {
            Ok(()) => return Some(directory),
            // A blocking wait could not be cancelled.
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_EVERY).await,
            Err(TryLockError::Error(_)) => return None,
        }
    }
}

/// Returns whether a name is that of a temporary file of this module.
pub(super) fn is_temporary(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(TEMPORARY_PREFIX) && name.ends_with(TEMPORARY_SUFFIX))
}

/// A file that is not at its place yet. Its temporary name is removed on drop, whatever has the name then.
struct Temporary<'a> {
    place: &'a Place,
    file: File,
    name: String,
    /// Whether the name is in the directory.
    is_linked: bool,
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if self.is_linked
            && let Err(error) = self.place.dir.remove_file(&self.name)
        {
            tracing::warn!(name = self.name, %error, "a temporary file was not removed");
        }
    }
}

impl<'a> Temporary<'a> {
    /// Creates an empty file. `is_private`: only its owner may read it, until it gets other rights.
    fn create(place: &'a Place, is_private: bool) -> io::Result<Self> {
        match create_without_name(place, is_private) {
            Some(file) => Ok(Self { place, file, name: new_name(), is_linked: false }),
            None => Self::create_with_name(place, is_private),
        }
    }

    #[cfg_attr(not(unix), expect(unused_variables, reason = "files are private by their folder there"))]
    fn create_with_name(place: &'a Place, is_private: bool) -> io::Result<Self> {
        let name = new_name();
        let mut options = cap_std::fs::OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        if is_private {
            cap_std::fs::OpenOptionsExt::mode(&mut options, 0o600);
        }
        let file = place.dir.open_with(&name, &options)?.into_std();
        Ok(Self { place, file, name, is_linked: true })
    }

    /// Gives the file the name under which it is replaced.
    fn link(&mut self, is_locked: bool) -> io::Result<()> {
        if is_locked && self.is_linked {
            self.place.dir.rename(&self.name, &self.place.dir, TEMPORARY)?;
        }
        if is_locked {
            TEMPORARY.clone_into(&mut self.name);
        }
        #[cfg(target_os = "linux")]
        if !self.is_linked {
            use rustix::fs::{AtFlags, CWD, linkat};
            match self.place.dir.remove_file(&self.name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            linkat(CWD, own_path(&self.file), &self.place.dir, &*self.name, AtFlags::SYMLINK_FOLLOW)?;
            self.is_linked = true;
        }
        Ok(())
    }

    /// Takes the name of the place, if nothing has it.
    fn take_free_name(&mut self) -> Result<(), NotReplaced> {
        #[cfg(any(target_os = "linux", target_os = "macos"))]
        match rename(self.place, &self.name, rustix::fs::RenameFlags::NOREPLACE) {
            Ok(()) => {
                self.is_linked = false;
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(NotReplaced::Changed),
            Err(error) if !is_unsupported(&error) => return Err(error.into()),
            Err(_) => {}
        }
        self.take_free_name_by_link()
    }

    /// Takes the name by a hard link, which is refused if something has the name. The temporary name is removed on
    /// drop.
    fn take_free_name_by_link(&self) -> Result<(), NotReplaced> {
        match self.place.dir.hard_link(&self.name, &self.place.dir, &self.place.name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(NotReplaced::Changed),
            linked => Ok(linked?),
        }
    }

    /// Takes the name of the place, if the file that has it is of this version.
    fn take_name_of(&mut self, version: &Version) -> Result<(), NotReplaced> {
        #[cfg(any(target_os = "linux", target_os = "macos"))]
        match rename(self.place, &self.name, rustix::fs::RenameFlags::EXCHANGE) {
            Ok(()) => return self.check_replaced(version),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NotReplaced::Changed),
            Err(error) if !is_unsupported(&error) => return Err(error.into()),
            Err(_) => {}
        }
        self.take_name_after_a_look(version)
    }

    /// Takes the name if the file that has it is of this version now. A change after the look is lost.
    fn take_name_after_a_look(&mut self, version: &Version) -> Result<(), NotReplaced> {
        match version_of(self.place, &self.place.name) {
            Ok(current) if current == *version => {}
            _ => return Err(NotReplaced::Changed),
        }
        self.place.dir.rename(&self.name, &self.place.dir, &self.place.name)?;
        self.is_linked = false;
        Ok(())
    }

    /// Looks at the file that was replaced, which has the temporary name now. Puts it back if it is of another version.
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    fn check_replaced(&mut self, version: &Version) -> Result<(), NotReplaced> {
        /// So often another process may replace the file while it is put back.
        const MAX_ATTEMPTS: usize = 16;
        if version_of(self.place, OsStr::new(&self.name)).is_ok_and(|replaced| replaced == *version) {
            return Ok(());
        }
        let mut last_put = identity(&self.file.metadata()?);
        for _ in 0..MAX_ATTEMPTS {
            let put_back = self.named_identity();
            if let Err(error) = rename(self.place, &self.name, rustix::fs::RenameFlags::EXCHANGE) {
                // What was replaced stays under the temporary name, because it is at no other place.
                self.is_linked = false;
                return Err(error.into());
            }
            // If it is not what stood there, another process put a newer file there, which is put back in turn.
            if self.named_identity().is_none_or(|taken| taken == last_put) {
                break;
            }
            last_put = put_back.unwrap_or(last_put);
        }
        Err(NotReplaced::Changed)
    }

    /// The identity of what has the temporary name.
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    fn named_identity(&self) -> Option<(u64, u64)> {
        use cap_std::fs::MetadataExt as _;
        let metadata = self.place.dir.symlink_metadata(&self.name).ok()?;
        Some((metadata.dev(), metadata.ino()))
    }
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn identity(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}

fn new_name() -> String {
    format!("{TEMPORARY_PREFIX}{}{TEMPORARY_SUFFIX}", uuid::Uuid::new_v4().simple())
}

/// Creates a file that has no name yet, and vanishes with the process. `None` where that cannot be.
#[cfg(target_os = "linux")]
fn create_without_name(place: &Place, is_private: bool) -> Option<File> {
    use rustix::fs::{Mode, OFlags, access, openat};
    let mode = if is_private { 0o600 } else { 0o666 };
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file: File = openat(&place.dir, ".", flags, Mode::from_raw_mode(mode)).ok()?.into();
    // Without `/proc` it could get no name.
    access(own_path(&file), rustix::fs::Access::EXISTS).ok()?;
    Some(file)
}

#[cfg(not(target_os = "linux"))]
fn create_without_name(_place: &Place, _is_private: bool) -> Option<File> {
    None
}

/// The path of an open file that has no other.
#[cfg(target_os = "linux")]
fn own_path(file: &File) -> String {
    format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file))
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn rename(place: &Place, from: &str, flags: rustix::fs::RenameFlags) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(&place.dir, from, &place.dir, &*place.name, flags)?)
}

/// Returns whether the file system or the kernel has no such way to rename.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn is_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let error = Errno::from_io_error(error);
    error.is_some_and(|error| matches!(error, Errno::INVAL | Errno::NOSYS | Errno::NOTSUP | Errno::PERM))
}

/// Gives a file the owner, the group and the permissions of another. The owner stays if it may not be given away.
#[cfg(unix)]
fn keep_rights(file: &File, of: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
    let own = file.metadata()?;
    let mut mode = of.mode() & 0o777;
    if (own.uid(), own.gid()) != (of.uid(), of.gid()) && fchown(file, Some(of.uid()), Some(of.gid())).is_err() {
        let keeps_group = own.gid() == of.gid() || fchown(file, None, Some(of.gid())).is_ok();
        // The rights of one group are not those of another.
        mode = if keeps_group { mode } else { mode & 0o707 };
    }
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn keep_rights(_file: &File, _of: &Metadata) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::files::root::Root;
    use crate::tools::files::version::version_of_bytes;

    /// Writes `new` to the file `a`, with only what every system and file system has.
    fn write_plainly(root: &Root, expected: Option<&str>, new: &str) -> Result<(), NotReplaced> {
        let place = root.find(&root.parse("a").unwrap()).unwrap().unwrap();
        let mut temporary = Temporary::create_with_name(&place, expected.is_some())?;
        temporary.file.write_all(new.as_bytes())?;
        temporary.link(true)?;
        match expected {
            None => temporary.take_free_name_by_link(),
            Some(old) => temporary.take_name_after_a_look(&version_of_bytes(old.as_bytes()).unwrap()),
        }
    }

    #[test]
    fn fault_73_without_an_exchange_a_file_is_replaced_as_well_and_nothing_is_left() {
        let folder = std::env::temp_dir().join(new_name());
        std::fs::create_dir(&folder).unwrap();
        let root = Root::open(&folder).unwrap();
        assert!(matches!(write_plainly(&root, Some("none"), "x"), Err(NotReplaced::Changed)));
        assert!(write_plainly(&root, None, "one").is_ok());
        assert!(matches!(write_plainly(&root, None, "two"), Err(NotReplaced::Changed)));
        assert!(matches!(write_plainly(&root, Some("other"), "two"), Err(NotReplaced::Changed)));
        assert_eq!(std::fs::read_to_string(folder.join("a")).unwrap(), "one");
        assert!(write_plainly(&root, Some("one"), "two").is_ok());
        assert_eq!(std::fs::read_to_string(folder.join("a")).unwrap(), "two");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

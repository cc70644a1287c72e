//! The root directory, and the files below it. Every file is opened through directory handles, never through a path of
//! the system. Only regular files are opened, and never a link or a device in place of one.

use std::collections::hash_map::DefaultHasher;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::hash::{Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, FileType, OpenOptions};
use parking_lot::Mutex;

use crate::name;
use crate::tool_call::ToolError;
use crate::tools::files::relative_path::RelativePath;
use crate::tools::files::shown::quoted;
use crate::tools::files::versions_read::VersionsRead;

/// A directory, and what is shared by all who use it.
pub(super) struct Root {
    dir: Dir,
    /// The absolute paths of the directory, for errors.
    paths: Vec<PathBuf>,
    pub(super) versions_read: Mutex<VersionsRead>,
    /// One of these is held while a file is compared and replaced, by a number that is made of its path.
    writes: [tokio::sync::Mutex<()>; 64],
}

/// The greatest number of symbolic links on the way to a file, as on Linux.
const MAX_LINKS: usize = 40;

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let dir = Dir::open_ambient_dir(path, ambient_authority())?;
        let paths = [std::path::absolute(path), path.canonicalize()].into_iter().flatten().collect();
        let writes = [(); 64].map(|()| tokio::sync::Mutex::new(()));
        Ok(Self { dir, paths, versions_read: Mutex::default(), writes })
    }

    pub(super) fn parse(&self, path: &str) -> Result<RelativePath, ToolError> {
        RelativePath::parse(path, &self.paths)
    }

    pub(super) fn path(&self) -> &Path {
        self.paths.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Opens a directory.
    pub(super) fn dir(&self, path: &RelativePath) -> Result<Dir, ToolError> {
        let opened = self.dir.open_dir(path);
        opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotADirectory => format!("{} is not a directory", quoted(path.as_str())).into(),
            _ => failed(path, &error),
        })
    }

    /// Finds the place of a file, after all symbolic links. `None` if its folder does not exist. The file may not exist
    /// either.
    pub(super) fn find(&self, path: &RelativePath) -> Result<Option<Place>, ToolError> {
        let failed = |error| failed(path, &error);
        let is_directory = || format!("{} is a directory", quoted(path.as_str()));
        let mut current = Path::new(path.as_str()).to_owned();
        for followed in 0..=MAX_LINKS {
            // Only folders are resolved by the system: a file may be replaced meanwhile, and have no path then.
            let (parent, name) = (current.parent().unwrap_or(Path::new("")), current.file_name());
            let name = name.ok_or_else(is_directory)?;
            let place = match self.place(parent, name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && followed == 0 => return Ok(None),
                place => place.map_err(failed)?,
            };
            match place.dir.symlink_metadata(name) {
                Ok(metadata) if metadata.is_symlink() => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound && followed > 0 => {
                    return Err(format!("{} is a symbolic link to nothing", quoted(path.as_str())).into());
                }
                _ => return Ok(Some(place)),
            }
            let target = place.dir.read_link_contents(name).map_err(failed)?;
            if target.is_absolute() {
                return Err(leads_out(&quoted(path.as_str())));
            }
            current = place.folder.join(target);
        }
        Err(format!("{}: too many symbolic links", quoted(path.as_str())).into())
    }

    /// Makes the folders of a new file, and returns its place.
    pub(super) fn make_place(&self, path: &RelativePath) -> Result<Place, ToolError> {
        let (parent, name) = path.as_str().rsplit_once('/').unwrap_or((".", path.as_str()));
        self.check_new_folders(path, parent)?;
        path.check_new([name].into_iter())?;
        let made = self.dir.create_dir_all(parent).and_then(|()| self.place(Path::new(parent), name.as_ref()));
        made.map_err(|error| failed(path, &error))
    }

    /// Checks the names of the folders that do not exist yet.
    fn check_new_folders(&self, path: &RelativePath, parent: &str) -> Result<(), ToolError> {
        let ends = parent.match_indices('/').map(|(end, _)| end).chain([parent.len()]);
        let existing = ends.take_while(|end| self.dir.symlink_metadata(&parent[..*end]).is_ok()).last().unwrap_or(0);
        path.check_new(parent[existing..].split('/').filter(|name| *name != "."))
    }

    /// The place of a name in a folder.
    fn place(&self, parent: &Path, name: &OsStr) -> io::Result<Place> {
        let parent = if parent == Path::new("") { Path::new(".") } else { parent };
        let folder = self.dir.canonicalize(parent)?;
        let dir = self.dir.open_dir(&folder)?;
        let folder = if folder == Path::new(".") { PathBuf::new() } else { folder };
        let path = folder.join(name);
        // Where upper and lower case name the same file, and letters in several encodings, they are one path here.
        let path = match cfg!(any(windows, target_os = "macos")) {
            true => name::key(&path.to_string_lossy().to_lowercase()).into_owned().into(),
            false => path,
        };
        Ok(Place { dir, name: name.to_owned(), folder, path: path.into() })
    }

    /// Waits until no other call compares and replaces this file. An asynchronous lock: it is held across pauses.
    pub(super) async fn lock(&self, place: &Place) -> tokio::sync::MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        place.path.hash(&mut hasher);
        // The remainder is below 64.
        let number = (hasher.finish() % self.writes.len() as u64) as usize;
        self.writes[number].lock().await
    }
}

/// The place of a file: a name in an opened directory.
pub(super) struct Place {
    pub(super) dir: Dir,
    pub(super) name: OsString,
    /// The path of the directory below the root, without links.
    folder: PathBuf,
    /// The path below the root, without links. It tells files apart, and opens none.
    pub(super) path: Arc<Path>,
}

impl Place {
    /// Opens a regular file of the directory, for reading, or for reading and writing.
    ///
    /// # Errors
    ///
    /// When it is something else, or cannot be opened.
    pub(super) fn open_regular(&self, name: &OsStr, writes: bool) -> io::Result<(File, Metadata)> {
        // Looked at first, because opening a device may do something.
        check_regular(self.dir.symlink_metadata(name)?.file_type())?;
        let mut options = OpenOptions::new();
        options.read(true).write(writes);
        #[cfg(unix)]
        {
            // It may have been replaced since.
            use cap_std::fs::OpenOptionsExt as _;
            use rustix::fs::OFlags;
            options.custom_flags((OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY).bits().cast_signed());
        }
        let file = self.dir.open_with(name, &options)?;
        check_regular(file.metadata()?.file_type())?;
        let file = file.into_std();
        check_file_system(&file)?;
        let metadata = file.metadata()?;
        Ok((file, metadata))
    }
}

fn check_regular(kind: FileType) -> io::Result<()> {
    match kind.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("is {}", kind_of(kind)))),
    }
}

/// The kind of something that is no regular file, with its article.
pub(super) fn kind_of(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use cap_std::fs::FileTypeExt as _;
        match () {
            () if kind.is_fifo() => return "a named pipe",
            () if kind.is_socket() => return "a socket",
            () if kind.is_block_device() || kind.is_char_device() => return "a device",
            () => {}
        }
    }
    match () {
        () if kind.is_file() => "a file",
        () if kind.is_dir() => "a directory",
        () if kind.is_symlink() => "a symbolic link",
        () => "of no known kind",
    }
}

/// Refuses files that the kernel makes up, such as the environment of a process. They look like regular files.
#[cfg(target_os = "linux")]
fn check_file_system(file: &File) -> io::Result<()> {
    /// Those of [statfs(2)](https://man7.org/linux/man-pages/man2/statfs.2.html): bpf, cgroup (1 and 2), configfs,
    /// debugfs, devpts, efivarfs, mqueue, nsfs, proc, pstore, resctrl, securityfs, selinuxfs, smackfs, sysfs, tracefs.
    const MADE_UP: [u32; 17] = [
        0xcafe_4a11,
        0x0027_e0eb,
        0x6367_7270,
        0x6265_6570,
        0x6462_6720,
        0x0000_1cd1,
        0xde5e_81e4,
        0x1980_0202,
        0x6e73_6673,
        0x0000_9fa0,
        0x6165_676c,
        0x0765_5821,
        0x7363_6673,
        0xf97c_ff8c,
        0x4341_5d53,
        0x6265_6572,
        0x7472_6163,
    ];
    // The type has 32 bits, whatever the width of the field.
    let kind = rustix::fs::fstatfs(file)?.f_type as u32;
    match MADE_UP.contains(&kind) {
        true => Err(io::Error::new(io::ErrorKind::InvalidInput, "is no stored file: the kernel makes it up")),
        false => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn check_file_system(_file: &File) -> io::Result<()> {
    Ok(())
}

/// The error of the system, with the path.
pub(super) fn failed(path: &RelativePath, error: &io::Error) -> ToolError {
    let path = quoted(path.as_str());
    match (error.kind(), error.raw_os_error()) {
        // Of this file and of cap-std.
        (io::ErrorKind::InvalidInput, None) => format!("{path} {error}").into(),
        (io::ErrorKind::PermissionDenied, None) => leads_out(&path),
        (io::ErrorKind::NotFound, _) => not_found(&path),
        _ => format!("{path}: {error}").into(),
    }
}

fn leads_out(path: &str) -> ToolError {
    format!("{path} leads out of the root, through a symbolic link").into()
}

pub(super) fn not_found(path: &str) -> ToolError {
    format!("{path} does not exist").into()
}

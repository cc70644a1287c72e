//! The folder of a shell: working directories beneath it, and the hidden folder for long output.
//!
//! On Linux everything is opened relative to the open folder, and no symlink leads out of it: a command can put one
//! anywhere. Nothing is written outside of it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use uuid::Uuid;

#[cfg(target_os = "linux")]
use linux::Folder;
#[cfg(target_os = "linux")]
pub(super) use linux::PrivateFolder;
#[cfg(not(target_os = "linux"))]
use portable::Folder;

/// The folder beneath the root for files of this tool.
const HIDDEN: &str = ".exec";
/// The number of files with long output that are kept.
const MAX_FILES: usize = 16;

/// The folder in which commands run.
pub(super) struct Root {
    path: PathBuf,
    folder: Folder,
    /// The names of the files with long output, the oldest first.
    files: Mutex<VecDeque<String>>,
    /// The processes of this machine, shared by all running commands.
    #[cfg(target_os = "linux")]
    pub(super) processes: std::sync::Arc<crate::tools::shell::processes::SharedProcesses>,
}

/// A working directory beneath the root, which exists.
pub(super) struct WorkingDir {
    pub(super) path: PathBuf,
    #[cfg(target_os = "linux")]
    pub(super) folder: std::os::fd::OwnedFd,
}

impl Root {
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let explain = |error: io::Error| io::Error::new(error.kind(), format!("root {}: {error}", dir.display()));
        let path = dir.canonicalize().map_err(explain)?;
        if path.parent().is_none() {
            return Err(explain(io::Error::other("everything would be beneath it; choose a folder of its own")));
        }
        let folder = Folder::open(&path).map_err(explain)?;
        Ok(Self {
            path,
            folder,
            files: Mutex::default(),
            #[cfg(target_os = "linux")]
            processes: std::sync::Arc::default(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the working directory that a model named; the root by default.
    pub(super) fn working_dir(&self, given: Option<&str>) -> Result<WorkingDir, String> {
        let given = given.unwrap_or_default();
        let explain = |what: &str| format!("working_dir {given:?}: {what}");
        let relative = Path::new(if given.is_empty() { "." } else { given });
        if relative.has_root() || relative.is_absolute() {
            return Err(explain(&match relative.strip_prefix(&self.path) {
                Ok(inside) if inside.as_os_str().is_empty() => "absolute paths are refused; use \".\"".to_owned(),
                Ok(inside) => format!("absolute paths are refused; use {inside:?}"),
                Err(_) => "absolute paths are refused; use a path relative to the root".to_owned(),
            }));
        }
        if given.contains('\0') {
            return Err(explain("contains a NUL character"));
        }
        if !self.folder.is_at(&self.path) {
            return Err(format!("the root folder {} was deleted or replaced", self.path.display()));
        }
        self.folder.working_dir(&self.path, relative).map_err(|error| explain(&describe(&error)))
    }

    /// Makes a file for long output. Returns it with its path relative to the root. The oldest one gives way.
    pub(super) fn make_file(&self) -> io::Result<(File, String)> {
        let name = format!("{}.txt", short_id());
        let file = self.folder.create(HIDDEN, &name)?;
        let mut files = self.files.lock();
        files.push_back(name.clone());
        if files.len() > MAX_FILES
            && let Some(oldest) = files.pop_front()
        {
            self.folder.remove(HIDDEN, &oldest);
        }
        Ok((file, format!("{HIDDEN}/{name}")))
    }

    /// Makes a folder for the temporary files of one command.
    #[cfg(target_os = "linux")]
    pub(super) fn private_folder(&self) -> io::Result<PrivateFolder> {
        self.folder.private_folder(&self.path, HIDDEN, format!("tmp-{}", short_id()))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let files = std::mem::take(self.files.get_mut());
        files.iter().for_each(|name| self.folder.remove(HIDDEN, name));
        self.folder.remove_if_empty(HIDDEN);
    }
}

fn short_id() -> String {
    let mut id = Uuid::new_v4().simple().to_string();
    id.truncate(12);
    id
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such folder".to_owned(),
        io::ErrorKind::NotADirectory => "it is not a folder".to_owned(),
        io::ErrorKind::CrossesDevices => "it leads out of the root".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::io;
    use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
    use std::path::{Path, PathBuf};

    use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, ResolveFlags};

    use super::WorkingDir;

    /// An open folder.
    pub(super) struct Folder(OwnedFd);

    const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

    impl Folder {
        pub(super) fn open(path: &Path) -> io::Result<Self> {
            Ok(Self(fs::openat(CWD, path, DIRECTORY, Mode::empty())?))
        }

        /// Returns whether the folder is still at this path.
        pub(super) fn is_at(&self, path: &Path) -> bool {
            let (Ok(own), Ok(there)) = (fs::fstat(&self.0), fs::stat(path)) else { return false };
            (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)
        }

        pub(super) fn working_dir(&self, root: &Path, relative: &Path) -> io::Result<WorkingDir> {
            // Symlinks within the root are followed.
            let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            let folder = fs::openat2(&self.0, relative, DIRECTORY | OFlags::PATH, Mode::empty(), beneath)?;
            // Without `.` and doubled slashes, as a shell shows it.
            Ok(WorkingDir { path: root.join(relative).components().collect(), folder })
        }

        /// Opens a folder directly in this one, and makes it if it does not exist.
        fn subfolder(&self, name: &str) -> io::Result<OwnedFd> {
            match fs::mkdirat(&self.0, name, Mode::RWXU) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            self.existing(name)
        }

        fn existing(&self, name: &str) -> io::Result<OwnedFd> {
            Ok(fs::openat(&self.0, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?)
        }

        pub(super) fn create(&self, folder: &str, name: &str) -> io::Result<File> {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
            Ok(fs::openat(self.subfolder(folder)?, name, flags, Mode::RUSR | Mode::WUSR)?.into())
        }

        /// Removes a file. A command may have removed it before.
        pub(super) fn remove(&self, folder: &str, name: &str) {
            if let Ok(folder) = self.existing(folder) {
                let _ = fs::unlinkat(folder, name, AtFlags::empty());
            }
        }

        pub(super) fn remove_if_empty(&self, folder: &str) {
            let _ = fs::unlinkat(&self.0, folder, AtFlags::REMOVEDIR);
        }

        pub(super) fn private_folder(&self, root: &Path, hidden: &str, name: String) -> io::Result<PrivateFolder> {
            let parent = self.subfolder(hidden)?;
            fs::mkdirat(&parent, &name, Mode::RWXU)?;
            Ok(PrivateFolder { path: root.join(hidden).join(&name), parent, name })
        }
    }

    /// A folder that is removed with all that is in it.
    pub(crate) struct PrivateFolder {
        pub(crate) path: PathBuf,
        parent: OwnedFd,
        name: String,
    }

    impl Drop for PrivateFolder {
        fn drop(&mut self) {
            // Follows no symlink beneath the open folder. What a command made unreadable stays.
            let parent = format!("/proc/self/fd/{}", self.parent.as_fd().as_raw_fd());
            if let Err(error) = std::fs::remove_dir_all(Path::new(&parent).join(&self.name)) {
                tracing::debug!(%error, "could not remove the temporary folder of a command");
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use std::fs::{self, File};
    use std::io;
    use std::path::{Path, PathBuf};

    use super::WorkingDir;

    /// A folder, by its path.
    pub(super) struct Folder(PathBuf);

    impl Folder {
        pub(super) fn open(path: &Path) -> io::Result<Self> {
            fs::read_dir(path).map(|_| Self(path.to_owned()))
        }

        pub(super) fn is_at(&self, path: &Path) -> bool {
            path.is_dir()
        }

        pub(super) fn working_dir(&self, root: &Path, relative: &Path) -> io::Result<WorkingDir> {
            let path = root.join(relative).canonicalize()?;
            if !path.starts_with(root) {
                return Err(io::ErrorKind::CrossesDevices.into());
            }
            if !path.is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            Ok(WorkingDir { path })
        }

        pub(super) fn create(&self, folder: &str, name: &str) -> io::Result<File> {
            let folder = self.0.join(folder);
            fs::create_dir_all(&folder)?;
            File::create_new(folder.join(name))
        }

        pub(super) fn remove(&self, folder: &str, name: &str) {
            let _ = fs::remove_file(self.0.join(folder).join(name));
        }

        pub(super) fn remove_if_empty(&self, folder: &str) {
            let _ = fs::remove_dir(self.0.join(folder));
        }
    }
}

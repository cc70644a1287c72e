//! The tools for files: [`Files`].
//!
//! They reach nothing but the root directory and what is below it. Nothing here opens a file by a path of the system.

mod edit;
mod list;
mod nearest;
mod pace;
mod page;
mod read;
mod relative_path;
mod replace;
mod root;
mod shown;
mod text;
mod version;
mod versions_read;
mod write;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::content::Content;
use crate::tool_call::{Arguments, ToolError, ToolErrorKind, ToolSpec, schema_of};
use crate::tool_interface::{Blocking, Tool, ToolContext};
use crate::tools::files::root::Root;
use crate::tools::wrapper::{InnerTool, ToolWrapper};

/// The tools for the files of one directory: `read_file`, `write_file`, `edit_file` and `list_dir`.
///
/// A clone uses the same directory. Requires the feature `files`.
///
/// ```
/// use std::time::Duration;
/// use agentouto::ToolExt as _;
/// use agentouto::tools::Files;
/// # use agentouto::providers::scripted::Scripted;
/// # use agentouto::{Agent, Runtime};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir();
///
/// let files = Files::beneath(&folder)?.timeout(Duration::from_secs(10));
/// let runtime = Runtime::builder()
///     .tools(files.tools())
/// #   .provider("script", Scripted::computed(|_| agentouto::Reply::text("")))
/// #   .agent(Agent::new("a", ""))
///     .build()?;
///
/// // Or some of them, with other tools around them.
/// let runtime = Runtime::builder()
///     .tool(files.read_file())
///     .tool(files.write_file().approved_by("human"))
/// #   .provider("script", Scripted::computed(|_| agentouto::Reply::text("")))
/// #   .agent(Agent::new("a", ""))
///     .build()?;
/// # Ok(())
/// # }
/// ```
///
/// # The root
///
/// The root is the directory that was opened, not its path: if the directory is moved, the tools move with it; if
/// another one takes its path, they do not see it. Models write paths relative to the root. Absolute paths, `..` and
/// `~` are refused, with the path to write instead. Symbolic links are followed as long as they stay below the root.
/// A file that is written through a link is the link's target; the link stays.
///
/// On Linux the kernel resolves each path (`openat2` with `RESOLVE_BENEATH`); on other systems and older kernels
/// [`cap_std`] opens each directory on the way. So no change of a directory during a call leads out of the root.
/// A directory that is below the root when it is opened, and is moved out of it while a call uses it, is still used by
/// this call. Other file systems that are mounted below the root are a part of it.
///
/// Every file below the root can be read, so keep keys and the files in which a program stores conversations elsewhere.
/// Only regular files are opened: no pipes, sockets and devices, and on Linux no files that the kernel makes up, such
/// as those of `/proc`.
///
/// A new file or folder gets no name that Linux, macOS or Windows could not have, such as `CON`, `a:b` or `a.`.
/// Existing files with such names can be read, written and edited, except on Windows.
///
/// # Reading
///
/// `read_file(path, offset?, limit?)` gives at most `limit` lines (default: 2,000) after the first `offset`, and
/// `list_dir(path, offset?, limit?)` so many entries (default: 500), sorted by name. Both say how many there are. A
/// line that is longer than the [limit of an answer](Self::max_output_bytes) is cut, and the answer says so. Reading
/// takes the same memory for a file of any size. Of a file of more than 64 MiB the lines are not counted.
///
/// Text is UTF-8, or UTF-16 with a byte order mark. Bytes that are not valid are shown as U+FFFD, and the answer names
/// the first. If all lines end with CR LF, they are shown with LF alone, and the answer says so. For any other file the
/// error names its kind.
///
/// # Writing
///
/// `write_file(path, content)` writes UTF-8, exactly as given, and makes missing folders. `edit_file(path, old_text,
/// new_text)` replaces a text that occurs exactly once; the encoding, the byte order mark and all other bytes stay. In
/// a file whose lines all end with CR LF, the lines of both texts may end with LF. A file can be edited up to 64 MiB.
///
/// A write is atomic: other readers see all of the old or all of the new content, also if the process is killed. The
/// content is on the disk before it gets the name. The file's permissions stay, and its owner and group if the process
/// may set them; access control lists and extended attributes do not. Another hard link to the old file keeps the old
/// content. A process that is killed may leave a file `.agentouto-swap.tmp`, which the next write in the same folder
/// removes. Where files cannot be without a name (not on Linux), it may also leave a file `.agentouto-….tmp` with a
/// part of the new content. `list_dir` does not show such files.
///
/// # Files that others change
///
/// `write_file` replaces a file only if it is as the call read it last. A call that has not read it is compared with
/// what its run read last. Otherwise the model reads that the file has changed. A file that the run never read is
/// replaced, and the answer says so. `edit_file` needs no such comparison: it replaces its text in the file as it is.
/// Files are compared by their content, and those of more than 64 MiB by size and time of change.
///
/// No update is lost between the calls of clones of one `Files`, in one or several runtimes, nor between several
/// `Files` and several processes that use these tools, as long as the file system has locks of directories (`flock`:
/// local file systems on Linux and macOS). Changes by other programs:
///
/// - On Linux and macOS the old and the new file change places in one step, and the old one is compared after it. If
///   it is not the expected one it is put back, so for an instant others may see the new content. A program that keeps
///   the old file open and writes to it later changes a file that has no name any more.
/// - On Windows, and on file systems without that step (NFS, FAT), a change in the microseconds between the last
///   comparison and the replacement is lost.
///
/// What was read is known as long as the run is alive, for 25,000 files that one agent reads, and fewer if several read
/// them. A run that reads more must read a file again before it replaces it.
///
/// # Cancellation
///
/// The work is done on threads that may block, see [`Blocking::Always`]. A cancelled call is not waited for, and
/// ends at its next pause: after at most a megabyte that is read or written, a thousand entries, or one search through
/// the text of an edit. A write that is not finished then leaves the old file.
#[derive(Clone)]
pub struct Files {
    root: Arc<Root>,
    is_read_only: bool,
    timeout: Duration,
    max_output_bytes: usize,
}

impl Files {
    /// The files of a directory, which is opened now. All tools may be used, within 30 s, with answers of 64 KiB.
    ///
    /// # Errors
    ///
    /// When there is no such directory, or the process may not open it.
    pub fn beneath(directory: impl AsRef<Path>) -> io::Result<Self> {
        let directory = directory.as_ref();
        let root = Root::open(directory)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", directory.display())))?;
        Ok(Self {
            root: Arc::new(root),
            is_read_only: false,
            timeout: Duration::from_secs(30),
            max_output_bytes: 64 * 1024,
        })
    }

    /// Lets models read only: [`tools`](Self::tools) gives no tools that write, and those that
    /// [`write_file`](Self::write_file) and [`edit_file`](Self::edit_file) give refuse every call.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self
    }

    /// Sets the time that one call may take, including the wait for a thread. The model reads an error after that.
    /// Default: 30 s.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Sets the size of the text that one answer of `read_file` or `list_dir` shows, in bytes, without the line about
    /// it. At least 256. Default: 65,536.
    #[must_use]
    pub fn max_output_bytes(mut self, limit: usize) -> Self {
        self.max_output_bytes = limit.max(256);
        self
    }

    /// The tool `read_file`.
    #[must_use]
    pub fn read_file(&self) -> FileTool {
        self.tool(Kind::Read)
    }

    /// The tool `write_file`.
    #[must_use]
    pub fn write_file(&self) -> FileTool {
        self.tool(Kind::Write)
    }

    /// The tool `edit_file`.
    #[must_use]
    pub fn edit_file(&self) -> FileTool {
        self.tool(Kind::Edit)
    }

    /// The tool `list_dir`.
    #[must_use]
    pub fn list_dir(&self) -> FileTool {
        self.tool(Kind::List)
    }

    /// All tools that may be used, in the order `read_file`, `write_file`, `edit_file`, `list_dir`.
    #[must_use]
    pub fn tools(&self) -> Vec<FileTool> {
        let writes = [self.write_file(), self.edit_file()].into_iter().filter(|_| !self.is_read_only);
        [self.read_file()].into_iter().chain(writes).chain([self.list_dir()]).collect()
    }

    fn tool(&self, kind: Kind) -> FileTool {
        let work = FileWork { files: self.clone(), kind };
        FileTool { inner: InnerTool::new(work), kind, limit: self.timeout }
    }

    /// # Errors
    ///
    /// When the files may only be read.
    fn check_writable(&self) -> Result<(), ToolError> {
        if self.is_read_only { Err("these files may be read only".into()) } else { Ok(()) }
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("root", &self.root.path())
            .field("is_read_only", &self.is_read_only)
            .field("timeout", &self.timeout)
            .field("max_output_bytes", &self.max_output_bytes)
            .finish()
    }
}

/// One of the tools of [`Files`].
#[derive(Clone, Debug)]
pub struct FileTool {
    inner: InnerTool,
    kind: Kind,
    limit: Duration,
}

impl ToolWrapper for FileTool {
    fn inner(&self) -> &InnerTool {
        &self.inner
    }

    fn run(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin(async move {
            let running = self.inner.call(arguments, context);
            tokio::time::timeout(self.limit, running).await.unwrap_or_else(|_| Err(self.timed_out()))
        })
    }
}

impl FileTool {
    fn timed_out(&self) -> ToolError {
        let error = ToolError::timeout(self.limit);
        match self.kind {
            Kind::Read | Kind::List => error,
            // The system may be about to replace the file.
            Kind::Write | Kind::Edit => ToolError {
                kind: ToolErrorKind::Timeout,
                message: format!("{}; read the file to see whether it was written", error.message).into(),
            },
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
    Edit,
    List,
}

/// The work of a tool, which blocks its thread.
struct FileWork {
    files: Files,
    kind: Kind,
}

impl Tool for FileWork {
    fn spec(&self) -> ToolSpec {
        let (name, description, parameters) = match self.kind {
            Kind::Read => (
                "read_file",
                "Reads a text file. The first line of the answer says which lines it shows.",
                schema_of::<read::ReadFile>(),
            ),
            Kind::Write => (
                "write_file",
                "Writes a text file, with its folders. Read an existing file before you replace it.",
                schema_of::<write::WriteFile>(),
            ),
            Kind::Edit => (
                "edit_file",
                "Replaces a text in a file. The text must occur exactly once.",
                schema_of::<edit::EditFile>(),
            ),
            Kind::List => ("list_dir", "Lists the entries of a folder.", schema_of::<list::ListDir>()),
        };
        ToolSpec { name: name.into(), description: description.into(), parameters }
    }

    fn call(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin(async move {
            let files = &self.files;
            let text = match self.kind {
                Kind::Read => read::read_file(files, parsed(arguments)?, &context).await?,
                Kind::Write => write::write_file(files, parsed(arguments)?, &context).await?,
                Kind::Edit => edit::edit_file(files, parsed(arguments)?, &context).await?,
                Kind::List => list::list_dir(files, parsed(arguments)?, &context).await?,
            };
            Ok(text.into())
        })
    }

    fn check(&self, arguments: &Arguments) -> Result<(), ToolError> {
        let arguments = arguments.clone();
        let path = match self.kind {
            Kind::Read => parsed::<read::ReadFile>(arguments)?.path,
            Kind::Write => parsed::<write::WriteFile>(arguments)?.path,
            Kind::Edit => parsed::<edit::EditFile>(arguments)?.path,
            Kind::List => parsed::<list::ListDir>(arguments)?.path,
        };
        if matches!(self.kind, Kind::Write | Kind::Edit) {
            self.files.check_writable()?;
        }
        self.files.root.parse(&path).map(drop)
    }

    fn blocking(&self) -> Blocking {
        Blocking::Always
    }
}

fn parsed<A: DeserializeOwned>(arguments: Arguments) -> Result<A, ToolError> {
    Ok(serde_json::from_value(Value::Object(arguments))?)
}

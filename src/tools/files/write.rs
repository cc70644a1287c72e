//! The tool `write_file`.

use std::fs::{File, Metadata};
use std::io;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::tool_call::ToolError;
use crate::tool_interface::ToolContext;
use crate::tools::files::Files;
use crate::tools::files::pace::Pace;
use crate::tools::files::read::fill;
use crate::tools::files::relative_path::RelativePath;
use crate::tools::files::replace::{Expected, NotReplaced, replace};
use crate::tools::files::root::{Place, failed};
use crate::tools::files::shown::quoted;
use crate::tools::files::version::{MAX_WHOLE, Version, VersionHasher, version_of_bytes};
use crate::tools::files::versions_read::Known;

/// The number of bytes that are read between two pauses.
const PIECE: usize = 1024 * 1024;

#[derive(Deserialize, JsonSchema)]
pub(super) struct WriteFile {
    /// Path of the file, relative to the root
    pub(super) path: String,
    /// The whole content of the file
    content: String,
}

pub(super) async fn write_file(files: &Files, write: WriteFile, context: &ToolContext) -> Result<String, ToolError> {
    files.check_writable()?;
    let path = files.root.parse(&write.path)?;
    let (content, mut pace) = (write.content.as_bytes(), Pace::new(context));
    let place = match files.root.find(&path)? {
        Some(place) => place,
        None => files.root.make_place(&path)?,
    };
    let _lock = files.root.lock(&place).await;
    let (current, metadata) = match place.open_regular(&place.name, true) {
        Ok((file, metadata)) => (current_version(file, &metadata, &path, &mut pace).await?, metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            path.check_new(place.name.to_str().into_iter())?;
            replace(&place, content, Expected::Nothing, &mut pace).await.map_err(|error| not_written(&path, error))?;
            written(files, context, &place, content);
            return Ok(format!("Created {} ({}).", quoted(path.as_str()), bytes(content.len() as u64)));
        }
        Err(error) => return Err(failed(&path, &error)),
    };
    let known = files.root.versions_read.lock().known(context, &place.path);
    check_known(&path, &known, &current)?;
    let expected = Expected::File(&current, &metadata);
    replace(&place, content, expected, &mut pace).await.map_err(|error| not_written(&path, error))?;
    written(files, context, &place, content);
    let unread = if known == Known::Never { ", which was not read in this run before" } else { "" };
    let (new, old) = (bytes(content.len() as u64), bytes(metadata.len()));
    Ok(format!("Replaced {}{unread} ({new}; it had {old}).", quoted(path.as_str())))
}

/// The version of the file that is at the place.
async fn current_version(
    mut file: File,
    metadata: &Metadata,
    path: &RelativePath,
    pace: &mut Pace<'_>,
) -> Result<Version, ToolError> {
    let mut hasher = VersionHasher::default();
    let mut piece = vec![0; usize::try_from(metadata.len()).map_or(PIECE, |length| PIECE.min(length + 1))];
    while hasher.bytes() <= MAX_WHOLE {
        let filled = fill(&mut file, &mut piece).map_err(|error| failed(path, &error))?;
        hasher.update(&piece[..filled]);
        if filled < piece.len() {
            break;
        }
        pace.pause("bytes compared", hasher.bytes(), Some(metadata.len())).await;
    }
    Ok(hasher.finish(metadata))
}

/// Compares what the model knows with what is there.
fn check_known(path: &RelativePath, known: &Known, current: &Version) -> Result<(), ToolError> {
    let path = quoted(path.as_str());
    match known {
        Known::Never => Ok(()),
        Known::Version(version) if version == current => Ok(()),
        Known::Version(_) => {
            Err(format!("conflict: {path} has changed since it was read last. Nothing was written. Read it again")
                .into())
        }
        Known::Forgotten => Err(format!("{path} was not read lately. Nothing was written. Read it again").into()),
    }
}

fn written(files: &Files, context: &ToolContext, place: &Place, content: &[u8]) {
    let mut read = files.root.versions_read.lock();
    match version_of_bytes(content) {
        Some(version) => read.written(context, &place.path, version),
        None => read.gone(context, &place.path),
    }
}

pub(super) fn not_written(path: &RelativePath, error: NotReplaced) -> ToolError {
    let path = quoted(path.as_str());
    match error {
        NotReplaced::Changed => {
            format!("conflict: {path} was changed by another process. Nothing was written. Read it again").into()
        }
        NotReplaced::Failed(error) if error.kind() == io::ErrorKind::InvalidInput && error.raw_os_error().is_none() => {
            format!("{path} {error}").into()
        }
        NotReplaced::Failed(error) => format!("{path} was not written: {error}").into(),
    }
}

fn bytes(count: u64) -> String {
    if count == 1 { "1 byte".to_owned() } else { format!("{count} bytes") }
}

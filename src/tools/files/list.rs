//! The tool `list_dir`.

use std::collections::BinaryHeap;
use std::ffi::OsString;
use std::fmt::Write as _;

use cap_std::fs::Dir;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::tool_call::ToolError;
use crate::tool_interface::ToolContext;
use crate::tools::files::Files;
use crate::tools::files::pace::Pace;
use crate::tools::files::relative_path::RelativePath;
use crate::tools::files::replace::is_temporary;
use crate::tools::files::root::{failed, kind_of};
use crate::tools::files::shown::{quoted, shown, shown_entry};

const DEFAULT_ENTRIES: u64 = 500;
/// The number of entries that are read between two pauses.
const ENTRIES: u64 = 1_000;

#[derive(Deserialize, JsonSchema)]
pub(super) struct ListDir {
    /// Path of the folder, relative to the root; `.` is the root
    pub(super) path: String,
    /// Number of entries to skip; default 0
    offset: Option<u64>,
    /// Greatest number of entries to show; default 500
    limit: Option<u64>,
}

pub(super) async fn list_dir(files: &Files, list: ListDir, context: &ToolContext) -> Result<String, ToolError> {
    let path = files.root.parse(&list.path)?;
    let dir = files.root.dir(&path)?;
    let offset = list.offset.unwrap_or(0);
    let end = offset.saturating_add(list.limit.unwrap_or(DEFAULT_ENTRIES).max(1));
    let mut pace = Pace::new(context);
    let (names, total) = first_names(&dir, end, &path, &mut pace).await?;
    if total == 0 {
        return Ok(format!("[{}: empty folder]", shown(path.as_str())));
    }
    if offset >= total {
        return Err(
            format!("{} has {total} entries; an offset of {offset} is past the end", quoted(path.as_str())).into()
        );
    }
    let (mut lines, mut last) = (String::new(), offset);
    for name in &names[usize::try_from(offset)?..] {
        let line = line(&dir, name);
        if lines.len() + line.len() > files.max_output_bytes && last > offset {
            break;
        }
        lines.push_str(&line);
        last += 1;
        if last % ENTRIES == 0 {
            pace.pause("entries shown", last - offset, None).await;
        }
    }
    let more = if last < total { format!("; continue with offset {last}") } else { String::new() };
    Ok(format!("[{}: entries {} to {last} of {total}{more}]{lines}", shown(path.as_str()), offset + 1))
}

/// Returns the first `end` names in their order, and the number of all. Keeps no others.
async fn first_names(
    dir: &Dir,
    end: u64,
    path: &RelativePath,
    pace: &mut Pace<'_>,
) -> Result<(Vec<OsString>, u64), ToolError> {
    let (mut first, mut total) = (BinaryHeap::new(), 0);
    for entry in dir.entries().map_err(|error| failed(path, &error))? {
        let name = entry.map_err(|error| failed(path, &error))?.file_name();
        if is_temporary(&name) {
            continue;
        }
        total += 1;
        first.push(name);
        if first.len() as u64 > end {
            first.pop();
        }
        if total % ENTRIES == 0 {
            pace.pause("entries read", total, None).await;
        }
    }
    Ok((first.into_sorted_vec(), total))
}

/// A line about an entry. The name comes last, because it may contain anything.
fn line(dir: &Dir, name: &OsString) -> String {
    let (shown, is_usable) = shown_entry(name);
    let mut line = String::from("\n");
    // A `String` takes every text.
    let _ = match dir.symlink_metadata(name) {
        Ok(metadata) if metadata.is_file() => write!(line, "file {} bytes: {shown}", metadata.len()),
        Ok(metadata) if metadata.is_dir() => write!(line, "folder: {shown}"),
        Ok(metadata) if metadata.is_symlink() => write!(line, "link: {shown}"),
        Ok(metadata) => write!(line, "{}: {shown}", kind_of(metadata.file_type())),
        Err(_) => write!(line, "gone: {shown}"),
    };
    if !is_usable {
        line.push_str(" (its name is not Unicode, so these tools cannot open it)");
    }
    line
}

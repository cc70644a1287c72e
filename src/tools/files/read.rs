//! The tool `read_file`.

use std::fs::File;
use std::io::{self, Read as _};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::tool_call::ToolError;
use crate::tool_interface::ToolContext;
use crate::tools::files::Files;
use crate::tools::files::pace::Pace;
use crate::tools::files::page::{FinishedPage, LineEnds, Page};
use crate::tools::files::relative_path::RelativePath;
use crate::tools::files::root::{failed, not_found};
use crate::tools::files::shown::{quoted, shown};
use crate::tools::files::text::{Decoder, HEAD, Piece, TextFormat};
use crate::tools::files::version::{MAX_WHOLE, VersionHasher};

const DEFAULT_LINES: u64 = 2_000;
/// The number of bytes that are read at once.
const PIECE: usize = 64 * 1024;
/// The number of pieces between two pauses.
const PIECES: usize = 16;

#[derive(Deserialize, JsonSchema)]
pub(super) struct ReadFile {
    /// Path of the file, relative to the root
    pub(super) path: String,
    /// Number of lines to skip; default 0
    offset: Option<u64>,
    /// Greatest number of lines to show; default 2000
    limit: Option<u64>,
}

pub(super) async fn read_file(files: &Files, read: ReadFile, context: &ToolContext) -> Result<String, ToolError> {
    let path = files.root.parse(&read.path)?;
    let Some(place) = files.root.find(&path)? else { return Err(not_found(&quoted(path.as_str()))) };
    let (mut file, metadata) = place.open_regular(&place.name, false).map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            files.root.versions_read.lock().gone(context, &place.path);
        }
        failed(&path, &error)
    })?;
    let page = Page::new(read.offset.unwrap_or(0), read.limit.unwrap_or(DEFAULT_LINES), files.max_output_bytes);
    let mut pace = Pace::new(context);
    let scanned = scan(&mut file, &path, page, metadata.len(), &mut pace).await?;
    let version = scanned.hasher.finish(&metadata);
    files.root.versions_read.lock().read(context, &place.path, &version);
    answer(&path, metadata.len(), &scanned.page, scanned.format, scanned.invalid)
}

/// What reading a file gave.
struct Scanned {
    page: FinishedPage,
    format: TextFormat,
    /// The first bytes that are not valid: the number of bytes before them, and the number of the line.
    invalid: Option<(u64, u64)>,
    hasher: VersionHasher,
}

/// Reads a file to its end, or a large one to the end of the page.
async fn scan(
    file: &mut File,
    path: &RelativePath,
    mut page: Page,
    length: u64,
    pace: &mut Pace<'_>,
) -> Result<Scanned, ToolError> {
    let mut buffer = vec![0; PIECE];
    let mut filled = fill(file, &mut buffer).map_err(|error| failed(path, &error))?;
    let format = TextFormat::of(&buffer[..filled.min(HEAD)])
        .map_err(|kind| format!("{} is {kind}, of {length} bytes", quoted(path.as_str())))?;
    let (mut decoder, mut hasher, mut invalid) = (Decoder::new(format), VersionHasher::default(), None);
    let mut skip = format.mark();
    let mut pieces = 0;
    let is_whole = loop {
        hasher.update(&buffer[..filled]);
        let is_last = filled < buffer.len();
        decoder.decode(&buffer[skip..filled], is_last, |piece| match piece {
            Piece::Text(text) => page.push(text),
            Piece::Invalid(byte) => {
                invalid.get_or_insert((byte, page.line()));
                page.push("\u{fffd}");
            }
        });
        if is_last {
            break true;
        }
        if page.is_full() && hasher.bytes() > MAX_WHOLE {
            break false;
        }
        skip = 0;
        pieces += 1;
        if pieces % PIECES == 0 {
            pace.pause("bytes read", hasher.bytes(), Some(length)).await;
        }
        filled = fill(file, &mut buffer).map_err(|error| failed(path, &error))?;
    };
    Ok(Scanned { page: page.finish(is_whole), format, invalid, hasher })
}

/// Fills the buffer, except at the end of the file.
pub(super) fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The answer: a line about the file and what is shown of it, and the text.
fn answer(
    path: &RelativePath,
    length: u64,
    page: &FinishedPage,
    format: TextFormat,
    invalid: Option<(u64, u64)>,
) -> Result<String, ToolError> {
    // Past the end there is no line, and no number of one.
    let (first, last) = (page.skipped.saturating_add(1), page.skipped.saturating_add(page.shown));
    let mut notes = Vec::new();
    match page.total {
        Some(0) => notes.push("empty file".to_owned()),
        Some(total) if page.shown == 0 => {
            let lines = if total == 1 { "1 line".to_owned() } else { format!("{total} lines") };
            let path = quoted(path.as_str());
            return Err(format!("{path} has {lines}; an offset of {} is past the end", page.skipped).into());
        }
        Some(total) => notes.push(format!("lines {first} to {last} of {total}")),
        None => notes.push(format!("lines {first} to {last}; the file has {length} bytes")),
    }
    if let Some(bytes) = page.cut {
        notes.push(format!("line {first} has {bytes} bytes, of which the first {} are shown", page.text.len()));
    }
    if page.total.is_none_or(|total| last < total) {
        notes.push(format!("continue with offset {last}"));
    } else if !page.ends_with_newline {
        notes.push("no newline at the end".to_owned());
    }
    notes.extend(format.description());
    match page.line_ends {
        LineEnds::Lf => {}
        LineEnds::CrLf => notes.push("all lines end with CR LF, shown as LF".to_owned()),
        LineEnds::Mixed => notes.push("some lines end with CR LF".to_owned()),
    }
    if let Some((byte, line)) = invalid {
        notes.push(format!(
            "not valid after {byte} bytes, in line {line}; what is not valid is shown as U+FFFD, and the file cannot be edited"
        ));
    }
    Ok(format!("[{}: {}]\n{}", shown(path.as_str()), notes.join("; "), page.text))
}

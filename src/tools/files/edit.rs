//! The tool `edit_file`.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::tool_call::ToolError;
use crate::tool_interface::ToolContext;
use crate::tools::files::Files;
use crate::tools::files::nearest::nearest;
use crate::tools::files::pace::Pace;
use crate::tools::files::page::LineEnds;
use crate::tools::files::read::fill;
use crate::tools::files::relative_path::RelativePath;
use crate::tools::files::replace::{Expected, replace};
use crate::tools::files::root::{Place, failed, not_found};
use crate::tools::files::shown::quoted;
use crate::tools::files::text::{HEAD, TextFormat};
use crate::tools::files::version::{MAX_WHOLE, VersionHasher, version_of_bytes};
use crate::tools::files::versions_read::Known;
use crate::tools::files::write::not_written;

/// The number of bytes that are read between two pauses.
const PIECE: usize = 1024 * 1024;
/// The number of places that an error names.
const MAX_PLACES: usize = 10;

#[derive(Deserialize, JsonSchema)]
pub(super) struct EditFile {
    /// Path of the file, relative to the root
    pub(super) path: String,
    /// The text to replace, exactly as in the file; it must occur once
    old_text: String,
    /// The text to put there
    new_text: String,
}

pub(super) async fn edit_file(files: &Files, edit: EditFile, context: &ToolContext) -> Result<String, ToolError> {
    files.check_writable()?;
    let path = files.root.parse(&edit.path)?;
    if edit.old_text.is_empty() {
        return Err("`old_text` is empty".into());
    }
    if edit.old_text == edit.new_text {
        return Err("`old_text` and `new_text` are the same".into());
    }
    let Some(place) = files.root.find(&path)? else { return Err(not_found(&quoted(path.as_str()))) };
    let _lock = files.root.lock(&place).await;
    let mut pace = Pace::new(context);
    let (bytes, metadata) = read_whole(&place, &path, &mut pace).await?;
    let (format, text) = decode(&path, &bytes)?;
    let (old, new) = with_line_ends(&text, &edit);
    let start = only_place(&path, &text, &old, &mut pace).await?;
    let edited = [&text[..start], &*new, &text[start + old.len()..]].concat();
    let mut hasher = VersionHasher::default();
    hasher.update(&bytes);
    let before = hasher.finish(&metadata);
    let edited_bytes = format.encode(&edited);
    let expected = Expected::File(&before, &metadata);
    replace(&place, &edited_bytes, expected, &mut pace).await.map_err(|error| not_written(&path, error))?;
    let mut read = files.root.versions_read.lock();
    // A model that did not know the rest of the file does not know it now.
    if read.known(context, &place.path) == Known::Version(before)
        && let Some(version) = version_of_bytes(&edited_bytes)
    {
        read.written(context, &place.path, version);
    }
    Ok(format!("Edited {}, line {}.", quoted(path.as_str()), line_of(&text, start)))
}

async fn read_whole(
    place: &Place,
    path: &RelativePath,
    pace: &mut Pace<'_>,
) -> Result<(Vec<u8>, std::fs::Metadata), ToolError> {
    let (mut file, metadata) = place.open_regular(&place.name, true).map_err(|error| failed(path, &error))?;
    let mut bytes = Vec::new();
    loop {
        if bytes.len() as u64 > MAX_WHOLE || metadata.len() > MAX_WHOLE {
            let length = metadata.len().max(bytes.len() as u64);
            let path = quoted(path.as_str());
            return Err(format!("{path} has {length} bytes; files can be edited up to {MAX_WHOLE} bytes").into());
        }
        let before = bytes.len();
        bytes.resize(before + PIECE, 0);
        let filled = fill(&mut file, &mut bytes[before..]).map_err(|error| failed(path, &error))?;
        bytes.truncate(before + filled);
        if filled < PIECE {
            return Ok((bytes, metadata));
        }
        pace.pause("bytes read", bytes.len() as u64, Some(metadata.len())).await;
    }
}

fn decode(path: &RelativePath, bytes: &[u8]) -> Result<(TextFormat, String), ToolError> {
    let path = quoted(path.as_str());
    let format = TextFormat::of(&bytes[..bytes.len().min(HEAD)])
        .map_err(|kind| format!("{path} is {kind}; only text can be edited"))?;
    let text = format.decode(bytes).map_err(|invalid| {
        format!(
            "{path} is not valid {} after {} bytes, in line {}; an edit could destroy it",
            invalid.encoding, invalid.byte, invalid.line
        )
    })?;
    Ok((format, text))
}

/// The old and the new text with the line ends of the file, if all of its lines end alike.
fn with_line_ends(text: &str, edit: &EditFile) -> (String, String) {
    let converted = |text: &str| text.replace("\r\n", "\n").replace('\n', "\r\n");
    match LineEnds::of(text) {
        LineEnds::CrLf => (converted(&edit.old_text), converted(&edit.new_text)),
        LineEnds::Lf | LineEnds::Mixed => (edit.old_text.clone(), edit.new_text.clone()),
    }
}

/// Finds the only place at which a text occurs.
async fn only_place(path: &RelativePath, text: &str, old: &str, pace: &mut Pace<'_>) -> Result<usize, ToolError> {
    let finder = memchr::memmem::Finder::new(old);
    let Some(first) = finder.find(text.as_bytes()) else {
        let nearest = nearest(text, old, pace).await;
        return Err(format!("`old_text` does not occur in {}. {nearest}", quoted(path.as_str())).into());
    };
    let mut places = vec![first];
    // Also those that overlap.
    while let Some(next) = finder.find(&text.as_bytes()[places[places.len() - 1] + 1..]) {
        places.push(places[places.len() - 1] + 1 + next);
        if places.len() > MAX_PLACES {
            break;
        }
    }
    if places.len() == 1 {
        return Ok(first);
    }
    let more = if places.len() > MAX_PLACES { " and further ones" } else { "" };
    let count = if places.len() > MAX_PLACES { format!("more than {MAX_PLACES}") } else { places.len().to_string() };
    let lines: Vec<String> = places.iter().take(MAX_PLACES).map(|place| line_of(text, *place).to_string()).collect();
    Err(format!(
        "`old_text` occurs {count} times in {}, in the lines {}{more}. Nothing was changed. Add text before or after it, \
         so that it occurs once",
        quoted(path.as_str()),
        lines.join(", ")
    )
    .into())
}

fn line_of(text: &str, place: usize) -> usize {
    1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..place]).count()
}

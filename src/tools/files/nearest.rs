//! The part of a file that is most like a text that does not occur in it.

use std::fmt::Write as _;

use crate::tools::files::pace::Pace;

/// The number of lines that are compared by their letters.
const MAX_COMPARED: usize = 20_000;
/// The number of lines of a file that are looked at, and of a text that are compared with them.
const MAX_LINES: usize = 1_000_000;
const MAX_WANTED: usize = 200;
/// The number of characters of a line that are compared.
const MAX_WIDTH: usize = 200;
/// The number of lines that are shown.
const MAX_SHOWN: usize = 20;
/// Lines that are less alike than this are not shown.
const MIN_SIMILARITY: f64 = 0.5;

/// Describes the part of `text` that is most like `wanted`.
pub(super) async fn nearest(text: &str, wanted: &str, pace: &mut Pace<'_>) -> String {
    let wanted: Vec<&str> = wanted.lines().skip_while(|line| line.trim().is_empty()).take(MAX_WANTED).collect();
    let Some(first) = wanted.first() else { return "It is white space alone".to_owned() };
    let lines: Vec<&str> = text.lines().take(MAX_LINES).collect();
    let Some(start) = most_alike(&lines, first, &wanted, pace).await else {
        return "No line is like its first line".to_owned();
    };
    let end = (start + wanted.len().min(MAX_SHOWN)).min(lines.len());
    let differs = lines[start..].iter().zip(&wanted).all(|(line, wanted)| line.trim() == wanted.trim());
    let mut description = match differs && end - start == wanted.len() {
        true => "The nearest text differs in white space only:".to_owned(),
        false => "The nearest text is:".to_owned(),
    };
    for (number, line) in (start + 1..).zip(&lines[start..end]) {
        let shown = &line[..line.floor_char_boundary(4 * MAX_WIDTH)];
        // A `String` takes every text.
        let _ = write!(description, "\n{number}: {shown}");
    }
    description
}

/// The number of the line at which the part begins that is most like `wanted`.
async fn most_alike(lines: &[&str], first: &str, wanted: &[&str], pace: &mut Pace<'_>) -> Option<usize> {
    let alike =
        |start: usize| lines[start..].iter().zip(wanted).filter(|(line, wanted)| line.trim() == wanted.trim()).count();
    let same = (0..lines.len()).filter(|start| lines[*start].trim() == first.trim());
    // The first of those that are alike in the same number of lines.
    if let Some(start) = same.take(1_000).map(|start| (alike(start), std::cmp::Reverse(start))).max() {
        return Some(start.1.0);
    }
    let first = narrow(first);
    let mut best = (MIN_SIMILARITY, None);
    for (number, line) in lines.iter().enumerate().take(MAX_COMPARED) {
        let similarity = strsim::sorensen_dice(narrow(line), first);
        if similarity > best.0 {
            best = (similarity, Some(number));
        }
        if number % 1_000 == 999 {
            pace.pause("lines compared", number as u64, Some(lines.len() as u64)).await;
        }
    }
    best.1
}

/// The beginning of a line, without white space around it.
fn narrow(line: &str) -> &str {
    let line = line.trim();
    &line[..line.floor_char_boundary(MAX_WIDTH)]
}

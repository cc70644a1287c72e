//! What the beginning of a text looks like: a call, a mere mention, or not yet clear. Plain functions.

use super::toolset::Toolset;

/// What may become a call, as far as it has arrived.
pub(super) enum Looks {
    LikeACall,
    LikeText,
    Unclear,
}

/// How a tag of a call begins.
pub(super) const CALL: &str = "<tool_call";
/// How Mistral's calls begin.
pub(super) const MISTRAL: &str = "[TOOL_CALLS]";
/// The longest opening tag, info string or space that is waited for, in bytes.
pub(super) const LONGEST_HEAD: usize = 1024;

/// Whether what follows `<tool_call>` is a call: an element, JSON, a fence, or the name of a tool.
pub(super) fn call_looks(inside: &str, tools: &Toolset, is_whole: bool) -> Looks {
    match inside.bytes().next() {
        None => Looks::Unclear,
        Some(b'{' | b'[') => Looks::LikeACall,
        Some(b'`') if inside.starts_with("```") => Looks::LikeACall,
        Some(b'`') if inside.len() < 3 && !is_whole => Looks::Unclear,
        Some(b'<') if CALL.starts_with(inside) && !is_whole => Looks::Unclear,
        Some(b'<') if inside[1..].starts_with(|c: char| c.is_ascii_alphabetic()) && !inside.starts_with(CALL) => {
            Looks::LikeACall
        }
        Some(_) => {
            let word = inside.split(|c: char| c.is_whitespace() || matches!(c, '<' | '{')).next().unwrap_or_default();
            match tools.contains(word) && !word.is_empty() {
                true if word.len() < inside.len() || is_whole => Looks::LikeACall,
                _ if word.len() == inside.len() && word.len() <= 64 && !is_whole => Looks::Unclear,
                _ => Looks::LikeText,
            }
        }
    }
}

pub(super) fn function_looks(inside: &str, is_whole: bool) -> Looks {
    let tags = ["{", "<parameter=", "</function>", "```", "\""];
    match tags.into_iter().any(|tag| inside.starts_with(tag)) {
        true => Looks::LikeACall,
        false if !is_whole && tags.into_iter().any(|tag| tag.starts_with(inside)) => Looks::Unclear,
        false => Looks::LikeText,
    }
}

/// Where the JSON begins behind `[TOOL_CALLS]`, or behind the name and the markers that may stand between.
pub(super) fn mistral_arguments(text: &str, is_whole: bool) -> Result<usize, Looks> {
    const MARKERS: [&str; 2] = ["[CALL_ID]", "[ARGS]"];
    let is_name = |c: char| c.is_alphanumeric() || c.is_whitespace() || "_-.".contains(c);
    let mut at = MISTRAL.len();
    loop {
        at = text.len() - text[at..].trim_start_matches(is_name).len();
        let rest = &text[at..];
        match MARKERS.iter().find(|marker| rest.starts_with(**marker)) {
            _ if at > LONGEST_HEAD => return Err(Looks::LikeText),
            Some(marker) => at += marker.len(),
            None if !is_whole && MARKERS.iter().any(|marker| marker.starts_with(rest)) => return Err(Looks::Unclear),
            None if rest.starts_with(['{', '[']) => return Ok(at),
            None => return Err(Looks::LikeText),
        }
    }
}

/// Whether JSON begins as a call does: an object whose first key names a tool or its arguments, or an array of such.
pub(super) fn json_looks(text: &str, is_whole: bool) -> Looks {
    const KEYS: [&str; 14] = [
        "name\"",
        "tool\"",
        "tool_name\"",
        "function\"",
        "action\"",
        "type\"",
        "id\"",
        "arguments\"",
        "parameters\"",
        "args\"",
        "input\"",
        "action_input\"",
        "tool_input\"",
        "call_id\"",
    ];
    let object = text.strip_prefix('[').map_or(text, str::trim_start);
    let key = object.strip_prefix('{').map(str::trim_start);
    let word = key.and_then(|key| key.strip_prefix('"'));
    match (object, key, word) {
        (_, _, Some(word)) if KEYS.iter().any(|key| word.starts_with(key)) => Looks::LikeACall,
        (_, _, Some(word)) if !is_whole && KEYS.iter().any(|key| key.starts_with(word)) => Looks::Unclear,
        ("", ..) | (_, Some(""), _) if !is_whole => Looks::Unclear,
        _ => Looks::LikeText,
    }
}

/// The opening of a fenced block.
#[derive(Clone, Copy)]
pub(super) struct Fence {
    pub(super) mark: u8,
    pub(super) length: usize,
}

impl Fence {
    /// Whether a line closes the fence: as many marks or more, and nothing else.
    pub(super) fn closes(self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.length && line.bytes().all(|byte| byte == self.mark)
    }

    /// Whether a line that is not whole may still close it.
    pub(super) fn may_close(self, line: &str) -> bool {
        line.len() < LONGEST_HEAD && line.trim().bytes().all(|byte| byte == self.mark)
    }
}

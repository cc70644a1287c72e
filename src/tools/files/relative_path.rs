//! Paths as models write them: relative to the root, and refused if they could mean anything else. Pure: nothing here
//! opens a file.

use std::path::Path;

use crate::tool_call::ToolError;
use crate::tools::files::replace::is_temporary;
use crate::tools::files::shown::quoted;

/// A path below the root, without `.`, `..`, empty names and NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RelativePath(String);

/// The longest path that Linux takes, in bytes.
const MAX_PATH: usize = 4_095;
/// The longest name of a file on Linux (bytes), macOS (bytes) and Windows (UTF-16 units).
const MAX_NAME: usize = 255;

impl RelativePath {
    /// Reads a path. `roots` are the absolute paths of the root: for the error of an absolute path, and for nothing else.
    ///
    /// # Errors
    ///
    /// When the path is empty, absolute, too long, begins with `~`, or contains `..` or NUL. On Windows also when a
    /// name is not [possible everywhere](portable_problem), because Windows gives such names a meaning of their own.
    pub(super) fn parse(path: &str, roots: &[impl AsRef<Path>]) -> Result<Self, ToolError> {
        let refused = |why: String| Err(ToolError::from(format!("{} {why}", quoted(path))));
        if path.is_empty() {
            return Err("the path is empty; `.` is the root".into());
        }
        if path.contains('\0') {
            return refused("contains NUL, which no path may".to_owned());
        }
        if let Some(relative) = without_root(path, roots) {
            let suggestion = normalised(&relative).unwrap_or_default();
            let suggestion = quoted(if suggestion.is_empty() { "." } else { &suggestion }).into_owned();
            return refused(format!("is an absolute path; paths are relative to the root, such as {suggestion}"));
        }
        if path.starts_with('~') {
            return refused(
                "begins with `~`, which is not expanded; paths are relative to the root. For a file of that name, put \
                 `./` before it"
                    .to_owned(),
            );
        }
        let Some(plain) = normalised(path) else { return refused("leads out of the root".to_owned()) };
        if names(path).any(|name| name == "..") {
            let plain = quoted(if plain.is_empty() { "." } else { &plain }).into_owned();
            return refused(format!("contains `..`; write {plain}"));
        }
        if let Some(length) = names(&plain).map(length).find(|length| *length > MAX_NAME) {
            return refused(format!("contains a name of {length} bytes; {MAX_NAME} are possible"));
        }
        if plain.len() > MAX_PATH {
            return refused(format!("is a path of {} bytes; {MAX_PATH} are possible", plain.len()));
        }
        let problem = names(&plain).find_map(portable_problem).filter(|_| cfg!(windows));
        match problem {
            Some(problem) => refused(problem.to_owned()),
            None if plain.is_empty() => Ok(Self(".".to_owned())),
            None => Ok(Self(plain)),
        }
    }

    /// The path, its names divided by `/`; `.` is the root.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks that the names could be those of new files and folders on every platform, and are not those of temporary
    /// files.
    ///
    /// # Errors
    ///
    /// When one of `names` cannot.
    pub(super) fn check_new<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> Result<(), ToolError> {
        let problem = |name: &str| match is_temporary(name.as_ref()) {
            true => Some("contains a name of temporary files of these tools"),
            false => portable_problem(name),
        };
        match names.find_map(problem) {
            Some(problem) => Err(format!("{} {problem}; choose another name", quoted(&self.0)).into()),
            None => Ok(()),
        }
    }
}

impl AsRef<Path> for RelativePath {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

/// The names in a path, without empty ones and `.`.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split(is_separator).filter(|name| !matches!(*name, "" | "."))
}

fn is_separator(c: char) -> bool {
    c == '/' || cfg!(windows) && c == '\\'
}

fn length(name: &str) -> usize {
    if cfg!(windows) { name.encode_utf16().count() } else { name.len() }
}

/// Resolves `.` and `..` by the names alone. `None` if that leaves the root.
fn normalised(path: &str) -> Option<String> {
    let mut kept: Vec<&str> = Vec::new();
    for name in names(path) {
        match name {
            ".." => drop(kept.pop()?),
            name => kept.push(name),
        }
    }
    Some(kept.join("/"))
}

/// An absolute path without the root, or at least relative; `None` for a path that is relative.
fn without_root(path: &str, roots: &[impl AsRef<Path>]) -> Option<String> {
    let has_drive = cfg!(windows) && path.as_bytes().get(1) == Some(&b':') && path.as_bytes()[0].is_ascii_alphabetic();
    if !has_drive && !path.starts_with(is_separator) {
        return None;
    }
    // By whole names: `/work` is no part of `/workspace`.
    let inside = roots.iter().find_map(|root| Path::new(path).strip_prefix(root).ok()?.to_str());
    let rest = inside.unwrap_or(if has_drive { &path[2..] } else { path });
    Some(rest.trim_start_matches(is_separator).to_owned())
}

/// Returns why not every platform could have a file of this name, if so.
/// See [Naming Files](https://learn.microsoft.com/en-us/windows/win32/fileio/naming-a-file).
fn portable_problem(name: &str) -> Option<&'static str> {
    const DEVICES: [&str; 7] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$"];
    let stem = name.split(['.', ':']).next().unwrap_or(name).trim_end().to_ascii_uppercase();
    let numbered = |prefix| {
        let number = stem.strip_prefix(prefix).unwrap_or_default();
        matches!(number, "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³")
    };
    if DEVICES.contains(&&*stem) || numbered("COM") || numbered("LPT") {
        Some("contains a name that is a device on Windows")
    } else if name.ends_with(['.', ' ']) {
        Some("contains a name that ends with a dot or a space, which Windows removes")
    } else if name.contains(['<', '>', ':', '"', '|', '?', '*', '\\']) {
        Some("contains one of `<>:\"|?*\\`, which Windows does not allow in names")
    } else if name.chars().any(char::is_control) {
        Some("contains a control character")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Result<&str, &str>) {
        let actual = RelativePath::parse(path, &["/work/project"]).map_err(|error| error.message.to_string());
        assert_eq!(
            actual.as_ref().map(RelativePath::as_str),
            expected.map_err(str::to_owned).as_ref().copied(),
            "{path:?}"
        );
    }

    #[test]
    #[cfg(unix)]
    fn fault_61_a_path_is_relative_and_stays_below_the_root() {
        check("src/a.rs", Ok("src/a.rs"));
        check("./src//./a.rs/", Ok("src/a.rs"));
        check(".", Ok("."));
        check("...", Ok("..."));
        check("./~x", Ok("~x"));
        check("a~/b:c/CON/d. /e\\f", Ok("a~/b:c/CON/d. /e\\f"));
        check("", Err("the path is empty; `.` is the root"));
        check("../../etc/passwd", Err("`../../etc/passwd` leads out of the root"));
        check("a/../../x", Err("`a/../../x` leads out of the root"));
        check("a/../x", Err("`a/../x` contains `..`; write `x`"));
        check("a/..", Err("`a/..` contains `..`; write `.`"));
        let absolute = "is an absolute path; paths are relative to the root, such as";
        check("/etc/passwd", Err(&format!("`/etc/passwd` {absolute} `etc/passwd`")));
        check("/work/project/src/a.rs", Err(&format!("`/work/project/src/a.rs` {absolute} `src/a.rs`")));
        check("/work/project", Err(&format!("`/work/project` {absolute} `.`")));
        check("//x/../y", Err(&format!("`//x/../y` {absolute} `y`")));
        check("a\0b", Err("\"a\\u0000b\" contains NUL, which no path may"));
        check(&format!("x/{}", "n".repeat(255)), Ok(&format!("x/{}", "n".repeat(255))));
        for (path, expected) in [
            ("~", "begins with `~`"),
            ("~root/x", "begins with `~`"),
            (&"n".repeat(4_096), "contains a name of 4096 bytes; 255 are possible"),
            (&"nn/".repeat(2_000), "is a path of 5999 bytes; 4095 are possible"),
        ] {
            let error = RelativePath::parse(path, &["/"]).unwrap_err().message;
            assert!(error.contains(expected) && error.len() < 500, "{error}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn fault_66_a_folder_with_the_same_beginning_is_another() {
        let absolute = "is an absolute path; paths are relative to the root, such as";
        check("/work/project-evil/a", Err(&format!("`/work/project-evil/a` {absolute} `work/project-evil/a`")));
    }

    #[test]
    fn fault_61_a_new_name_is_possible_on_every_platform() {
        for name in ["CON", "con.txt", "Nul", "COM1.log", "lpt¹", "aux .c", "a.", "b ", "a:b", "x|y", "a\\b", "a\nb"] {
            assert!(portable_problem(name).is_some(), "{name:?}");
        }
        for name in [".env", "a.b.c", "CONFIG", "COM", "COM10", "[id].tsx", "가", "console.log", "a b"] {
            assert_eq!(portable_problem(name), None, "{name:?}");
        }
    }
}

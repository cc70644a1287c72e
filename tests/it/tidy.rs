//! The shape of the crate: which file may use which, and who may name which foreign crate.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The files from the ground up. A file imports from a lower floor, or from the left on its own.
const FLOORS: [&[&str]; 4] = [
    &[
        "panics",
        "name",
        "spelling",
        "call_id",
        "content",
        "tool_call",
        "answer_type",
        "reply",
        "context",
        "agent",
        "provider",
        "error",
        "run_context",
        "trace_place",
        "message",
        "event",
        "caller",
        "tool_interface",
    ],
    &["toolbox", "prompt", "builtin", "turn", "answer_delta", "log"],
    &[
        "call_id_source",
        "threads",
        "observers",
        "snapshot",
        "telemetry",
        "scope",
        "outcome",
        "delivery",
        "poll_timer",
        "tool_run",
        "model_call",
        "fan_out",
        "actor_peer",
        "invocation",
        "router",
        "user",
    ],
    &[
        "runtime",
        "spans",
        "builder",
        "call_builder",
        "budget",
        "typed",
        "trace",
        "agent_prompt",
        "log_details",
        "testing",
        "tool",
        "schema",
        "error_chain",
        "secrets",
        "redirects",
        "providers",
        "tools",
        "mcp",
    ],
];

/// Foreign crates that only some files may name.
const FOREIGN: &[(&str, &[&str])] = &[
    ("ractor", &["delivery", "actor_peer", "invocation", "router", "user", "runtime", "builder"]),
    (
        "tokio",
        &[
            "threads",
            "observers",
            "scope",
            "snapshot",
            "delivery",
            "tool_run",
            "fan_out",
            "actor_peer",
            "invocation",
            "router",
            "user",
            "runtime",
            "budget",
            "providers",
            "tools",
            "mcp",
        ],
    ),
    ("async_task", &["threads"]),
    ("pin_project_lite", &["threads", "mcp/server/sessions"]),
    ("slab", &["observers", "scope"]),
    ("rpds", &["name"]),
    ("unicode_general_category", &["name"]),
    ("unicode_normalization", &["name"]),
    (
        "reqwest",
        &[
            "redirects",
            "providers/http",
            "mcp/transport/streamable_http",
            "tools/web/client",
            "tools/web/fetch",
            "tools/web/resolver",
            "tools/web/search/json_client",
        ],
    ),
    ("secrecy", &["secrets", "providers/http", "tools/web"]),
    ("chardetng", &["tools/web/charset"]),
    ("dom_query", &["tools/web/page", "tools/web/search"]),
    ("dom_smoothie", &["tools/web/page"]),
    ("encoding_rs", &["tools/files/text", "tools/web/charset", "tools/web/media_type"]),
    ("html5ever", &["tools/web/page"]),
    ("icu_properties", &["mcp/client/visible"]),
    ("json_strip_comments", &["mcp/client/config_file"]),
    ("url", &["mcp/client/redaction", "mcp/client/config", "tools/web"]),
    ("bytes", &["providers/http"]),
    ("opentelemetry", &["spans"]),
    ("tracing_opentelemetry", &["spans"]),
    ("jsonschema", &["schema"]),
    ("rmcp", &["mcp"]),
    ("axum", &["mcp/server"]),
    ("hyper", &["mcp/server"]),
    ("hyper_util", &["mcp/server"]),
    ("process_wrap", &["mcp/transport/child", "tools/shell/portable"]),
    ("nix", &["mcp/transport/child", "tools/shell/spawner"]),
    ("landlock", &["tools/shell/ruleset"]),
    ("libc", &["tools/shell/seccomp"]),
    ("rustix", &["tools/files", "tools/shell"]),
    ("seccompiler", &["tools/shell/seccomp", "tools/shell/ruleset"]),
    ("percent_encoding", &["mcp/client/redaction"]),
    ("sha2", &["mcp/client/definition", "tools/files/version"]),
    ("cap_std", &["tools/files"]),
    ("infer", &["tools/files/text"]),
    ("subtle", &["mcp/server"]),
];

/// Every source file but `lib.rs`, by its path without ending, with what it uses of this crate and of others.
fn sources() -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else {
                let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
                let name = path.strip_prefix(root).unwrap().with_extension("").to_str().unwrap().to_owned();
                found.push((name, code(&fs::read_to_string(&path).unwrap())));
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found.retain(|(name, _)| name != "lib");
    assert!(found.len() > 15, "the sources are found");
    found
}

/// The library's code of a file: no comments, no tests.
fn code(text: &str) -> String {
    let library = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    library.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn module(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

/// The modules that code names as `crate::module` or `crate::{one, two::Item}`.
fn used_modules(code: &str) -> Vec<&str> {
    let is_end = |c: char| !c.is_alphanumeric() && c != '_';
    let first = |path: &'_ str| path.trim().split(is_end).next().unwrap_or_default().len();
    let mut used = Vec::new();
    for path in code.split("crate::").skip(1) {
        let Some(group) = path.strip_prefix('{') else {
            used.push(&path[..first(path)]);
            continue;
        };
        let (mut depth, mut begin) = (0, 0);
        for (place, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    let path = group[begin..place].trim();
                    used.push(&path[..first(path)]);
                    begin = place + 1;
                }
                _ => {}
            }
            if c == '}' && begin == place + 1 {
                break;
            }
        }
    }
    used.retain(|name| !name.is_empty());
    used
}

#[test]
fn a_file_imports_only_from_below_or_from_its_left() {
    let grouped =
        "use crate::{name::Name, tool::{self, Tool}, User}; use crate::turn; fn f(_: crate::content::Content) {}";
    assert_eq!(used_modules(grouped), ["name", "tool", "User", "turn", "content"]);
    let floor_of: HashMap<&str, (usize, usize)> = FLOORS
        .iter()
        .enumerate()
        .flat_map(|(floor, files)| files.iter().enumerate().map(move |(place, file)| (*file, (floor, place))))
        .collect();
    for (name, code) in sources() {
        let own = floor_of.get(module(&name)).unwrap_or_else(|| panic!("src/{name}.rs stands on no floor"));
        for used in used_modules(&code) {
            // What the root exports again is named by its module.
            let theirs = floor_of.get(used).unwrap_or_else(|| panic!("src/{name}.rs uses `crate::{used}`, no module"));
            let may = theirs.0 < own.0 || theirs.0 == own.0 && theirs.1 <= own.1;
            assert!(may, "src/{name}.rs uses `crate::{used}`, which is not below it");
        }
    }
}

#[test]
fn a_foreign_crate_is_named_only_where_it_belongs() {
    for (name, code) in sources() {
        for &(krate, files) in FOREIGN {
            let is_named = code
                .match_indices(&format!("{krate}::"))
                .any(|(place, _)| !code[..place].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
            let may = files.iter().any(|file| name == *file || name.starts_with(&format!("{file}/")));
            assert!(!is_named || may, "src/{name}.rs names `{krate}`");
        }
    }
}

#[test]
fn the_core_stays_small() {
    let core = FLOORS[..3].concat();
    let lines: usize = sources()
        .iter()
        .filter(|(name, _)| core.contains(&module(name)))
        .map(|(_, code)| code.lines().filter(|line| !line.trim().is_empty()).count())
        .sum();
    assert!(lines < 4_450, "floors 0 to 2 have {lines} lines of code");
}

#[test]
fn the_agent_loop_fits_on_one_screen() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/invocation.rs")).unwrap();
    let body = text.split("async fn run(&mut self)").nth(1).unwrap();
    let lines = body.split("\n    }\n").next().unwrap().lines().count();
    assert!(lines < 15, "the loop has {lines} lines");
}

#[test]
fn a_file_opens_with_what_it_is() {
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            assert!(fs::read_to_string(&path).unwrap().starts_with("//! "), "{}", path.display());
        }
    }
}

//! The JSON in which hosts configure servers, read in the same way as they do: Claude Desktop and
//! [Code](https://code.claude.com/docs/en/mcp), [Cursor](https://cursor.com/docs/context/mcp), [VS
//! Code](https://code.visualstudio.com/docs/copilot/reference/mcp-configuration),
//! [Windsurf](https://docs.windsurf.com/windsurf/cascade/mcp), [Gemini
//! CLI](https://github.com/google-gemini/gemini-cli/blob/main/docs/tools/mcp-server.md),
//! [Cline](https://docs.cline.bot/mcp/configuring-mcp-servers), [Roo
//! Code](https://docs.roocode.com/features/mcp/using-mcp-in-roo) and Copilot CLI.
//!
//! Nothing is searched for: only the text, or the file, that the program names is read. An unknown key is refused,
//! never skipped.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::mcp::client::config::ServerConfig;
use crate::mcp::client::error::Error;

/// The keys that have no effect here: questions to a person before a call, and texts that an editor or a market shows.
const IGNORED: [&str; 9] =
    ["description", "autoApprove", "alwaysAllow", "trust", "watchPaths", "alwaysLoad", "gallery", "version", "dev"];
/// The keys of unsupported features, with the alternatives.
const REFUSED: [(&str, &str); 10] = [
    ("envFile", "no other file is read; write its variables under `env`, as `${NAME}`"),
    ("headersHelper", "no program is run for headers; write them under `headers`, as `${NAME}`"),
    ("oauth", SIGN_IN),
    ("auth", SIGN_IN),
    ("authProviderType", SIGN_IN),
    ("oauthClientId", SIGN_IN),
    ("targetAudience", SIGN_IN),
    ("targetServiceAccount", SIGN_IN),
    ("sandbox", SANDBOX),
    ("sandboxEnabled", SANDBOX),
];
const SIGN_IN: &str = "nobody is signed in here; write a token under `headers`";
const SANDBOX: &str = "no sandbox is made here; start one as the `command`";
/// The names that only editors replace in `${…}`; and the prefixes after which editors ask for the rest of the name.
const OF_EDITORS: [&str; 6] = ["userHome", "workspaceFolder", "workspaceFolderBasename", "pathSeparator", "/", "cwd"];
const SCHEMES: [&str; 4] = ["input", "config", "command", "workspaceFolder"];
/// The values of `timeout` that may be seconds (Cline and Roo Code, which allow up to an hour) or milliseconds (all
/// others). Smaller values are seconds, larger ones are milliseconds.
const AMBIGUOUS: RangeInclusive<u64> = 1_000..=3_600;

/// Reads the servers in their order, without the disabled ones. `variable` returns the value of an environment
/// variable.
pub(crate) fn read(
    text: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(String, ServerConfig)>, Error> {
    let mut servers: Vec<(String, ServerConfig)> = Vec::new();
    let (entries, chosen) = entries(text)?;
    for (name, entry) in entries.into_iter().filter(|(name, _)| chosen.takes(name)) {
        let Value::Object(rest) = entry else {
            return Err(Error::Config { server: name.into(), key: "".into(), reason: "an object is expected".into() });
        };
        let mut entry = Entry { server: &name, rest, variable: &variable };
        if entry.is_disabled()? {
            continue;
        }
        let server = entry.server()?;
        if servers.iter().any(|(other, _)| *other == name) {
            return Err(entry.error("", "the file has two servers of that name"));
        }
        servers.push((name, server));
    }
    Ok(servers)
}

fn entries(text: &str) -> Result<(Vec<(String, Value)>, Chosen), Error> {
    let unreadable = |reason: String| Error::ConfigUnreadable { reason: reason.into() };
    let mut text = text.trim_start_matches('\u{feff}').to_owned();
    json_strip_comments::strip(&mut text).map_err(|error| unreadable(error.to_string()))?;
    let file: File = serde_json::from_str(&text).map_err(|error| match error.is_data() {
        // The error's own message shows values.
        true => unreadable(format!("{EXPECTED}, at line {} column {}", error.line(), error.column())),
        false => unreadable(error.to_string()),
    })?;
    let chosen = match file.mcp {
        Some(chosen @ Value::Object(_)) => serde_json::from_value(chosen).map_err(|_| {
            unreadable("`allowed` and `excluded` of `mcp` are expected to be arrays of names".to_owned())
        })?,
        _ => Chosen::default(),
    };
    match (file.mcp_servers, file.servers) {
        (Some(servers), None) | (None, Some(servers)) => Ok((servers.0, chosen)),
        _ => Err(unreadable(EXPECTED.to_owned())),
    }
}

const EXPECTED: &str = r#"expected {"mcpServers": {name: …}}, or {"servers": {name: …}} as VS Code writes it"#;

#[derive(Deserialize)]
struct File {
    #[serde(rename = "mcpServers")]
    mcp_servers: Option<Ordered>,
    servers: Option<Ordered>,
    mcp: Option<Value>,
}

/// The selection of servers in Gemini CLI's settings.
#[derive(Default, Deserialize)]
struct Chosen {
    allowed: Option<Vec<String>>,
    #[serde(default)]
    excluded: Vec<String>,
}

impl Chosen {
    fn takes(&self, server: &str) -> bool {
        let is = |name: &String| name == server;
        self.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(is)) && !self.excluded.iter().any(is)
    }
}

/// The members of an object in their written order, including repeated ones.
struct Ordered(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Ordered;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("servers by their names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Ordered(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// The entry of one server. Keys that were read are removed from it.
struct Entry<'a, V> {
    server: &'a str,
    rest: Map<String, Value>,
    variable: &'a V,
}

impl<V: Fn(&str) -> Option<String>> Entry<'_, V> {
    fn server(&mut self) -> Result<ServerConfig, Error> {
        if let Some((key, instead)) = REFUSED.iter().find(|(key, _)| self.rest.contains_key(*key)) {
            return Err(self.error(key, instead));
        }
        let kind = self.text("type")?;
        let mut server = match (self.text("command")?, self.url()?) {
            (Some(program), None) => {
                self.check_kind(kind.as_deref(), &["stdio", "local"])?;
                self.command(program)?
            }
            (None, Some(url)) => {
                self.check_kind(kind.as_deref(), &["http", "streamable-http", "streamableHttp"])?;
                let headers = self.pairs("headers")?.into_iter();
                headers.fold(ServerConfig::http(url), |server, (name, value)| server.header(name, value))
            }
            _ => return Err(self.error("", "it must have either `command` or `url`")),
        };
        if let Some(timeout) = self.timeout()? {
            let longest = server.settings.total_timeout.max(timeout);
            server = server.idle_timeout(timeout).total_timeout(longest);
        }
        for key in ["includeTools", "tools"] {
            match self.texts(key)? {
                Some(tools) if tools != ["*"] => server = server.only(tools),
                _ => {}
            }
        }
        for key in ["excludeTools", "disabledTools"] {
            server = server.without(self.texts(key)?.unwrap_or_default());
        }
        IGNORED.iter().for_each(|key| drop(self.rest.remove(*key)));
        match self.rest.keys().next() {
            Some(key) => Err(self.error(key, "the key is unknown here")),
            None => Ok(server),
        }
    }

    fn is_disabled(&mut self) -> Result<bool, Error> {
        let (is_disabled, is_enabled) = (self.truth("disabled")?, self.truth("enabled")?);
        Ok(is_disabled == Some(true) || is_enabled == Some(false))
    }

    fn truth(&mut self, key: &str) -> Result<Option<bool>, Error> {
        match self.rest.remove(key) {
            None => Ok(None),
            Some(Value::Bool(truth)) => Ok(Some(truth)),
            Some(_) => Err(self.error(key, "`true` or `false` is expected")),
        }
    }

    /// The value under any of the key's names.
    fn url(&mut self) -> Result<Option<String>, Error> {
        let [url, server_url, http_url] = [self.text("url")?, self.text("serverUrl")?, self.text("httpUrl")?];
        match [&url, &server_url, &http_url].into_iter().flatten().count() {
            0 | 1 => Ok(url.or(server_url).or(http_url)),
            _ => Err(self.error("", "it must have one of `url`, `serverUrl` and `httpUrl`")),
        }
    }

    fn check_kind(&self, kind: Option<&str>, expected: &[&str]) -> Result<(), Error> {
        match kind {
            None => Ok(()),
            Some(kind) if expected.contains(&kind) => Ok(()),
            Some("sse") => Err(self.error("type", "`sse` is not spoken; servers speak streamable HTTP (`http`)")),
            Some(_) => Err(self.error("type", &format!("`{}` is expected", expected[0]))),
        }
    }

    fn command(&mut self, program: String) -> Result<ServerConfig, Error> {
        let mut server = ServerConfig::stdio(program, self.texts("args")?.unwrap_or_default());
        for (name, value) in self.pairs("env")? {
            server = server.env(name, value);
        }
        Ok(match self.text("cwd")? {
            Some(folder) => server.folder(folder),
            None => server,
        })
    }

    fn timeout(&mut self) -> Result<Option<Duration>, Error> {
        let Some(value) = self.rest.remove("timeout") else { return Ok(None) };
        let doubt = "some programs mean seconds by that and some milliseconds; a number below 1000 is read as seconds, one above \
            3600 as milliseconds";
        match value.as_u64() {
            None | Some(0) => Err(self.error("timeout", "a number of milliseconds is expected")),
            Some(number) if AMBIGUOUS.contains(&number) => Err(self.error("timeout", doubt)),
            Some(seconds) if seconds < *AMBIGUOUS.start() => Ok(Some(Duration::from_secs(seconds))),
            Some(millis) => Ok(Some(Duration::from_millis(millis))),
        }
    }

    fn text(&mut self, key: &str) -> Result<Option<String>, Error> {
        self.rest.remove(key).map(|value| self.string(key, value)).transpose()
    }

    fn texts(&mut self, key: &str) -> Result<Option<Vec<String>>, Error> {
        match self.rest.remove(key) {
            None => Ok(None),
            Some(Value::Array(values)) => {
                values.into_iter().map(|value| self.string(key, value)).collect::<Result<_, _>>().map(Some)
            }
            Some(_) => Err(self.error(key, "an array of texts is expected")),
        }
    }

    fn pairs(&mut self, key: &str) -> Result<Vec<(String, String)>, Error> {
        match self.rest.remove(key) {
            None => Ok(Vec::new()),
            Some(Value::Object(members)) => {
                members.into_iter().map(|(name, value)| Ok((name, self.string(key, value)?))).collect()
            }
            Some(_) => Err(self.error(key, "an object of texts is expected")),
        }
    }

    fn string(&self, key: &str, value: Value) -> Result<String, Error> {
        match value {
            Value::String(text) => self.expand(key, &text),
            Value::Number(_) | Value::Bool(_) => {
                Err(self.error(key, "a text is expected; write numbers, `true` and `false` in quotes"))
            }
            _ => Err(self.error(key, "a text is expected")),
        }
    }

    /// Replaces `${NAME}`, `${NAME:-default}` and `${env:NAME}`.
    fn expand(&self, key: &str, text: &str) -> Result<String, Error> {
        let (mut expanded, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            let Some((inside, after)) = after.split_once('}') else { break };
            self.check_plain(key, before, text)?;
            expanded.push_str(before);
            expanded.push_str(&self.value(key, inside)?);
            rest = after;
        }
        self.check_plain(key, rest, text)?;
        expanded.push_str(rest);
        Ok(expanded)
    }

    /// Refuses `$NAME` in a part of a text. The name is shown only if it is a separate word: elsewhere it may be a part
    /// of a secret.
    fn check_plain(&self, key: &str, part: &str, text: &str) -> Result<(), Error> {
        let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let mut names = part.split('$').skip(1).map(|rest| rest.split(is_end).next().unwrap_or_default());
        let Some(name) = names.find(|name| is_variable(name)) else { return Ok(()) };
        let is_word = text.split_whitespace().any(|word| word.strip_prefix('$') == Some(name));
        let name = if is_word { name } else { "NAME" };
        let reason = format!("`${name}` is a variable for some programs and a text for others; write `${{{name}}}`");
        Err(self.error(key, &reason))
    }

    /// The replacement of `${…}`. A text there that is not a name is not shown: it may be a part of a secret.
    fn value(&self, key: &str, inside: &str) -> Result<String, Error> {
        let (name, default) = inside.split_once(":-").map_or((inside, None), |(name, value)| (name, Some(value)));
        if is_of_editors(name) {
            let reason = format!("only an editor knows `${{{name}}}`; write what it stands for, or `${{NAME}}`");
            return Err(self.error(key, &reason));
        }
        let name = name.strip_prefix("env:").unwrap_or(name);
        let value = (self.variable)(name).filter(|value| default.is_none() || !value.is_empty());
        let value = value.or_else(|| default.map(str::to_owned));
        value.ok_or_else(|| match is_identifier(name) {
            true => self.error(key, &format!("the variable `{name}` is not set")),
            false => self.error(key, "`${…}` is expected to hold the name of a variable, as in `${NAME}`"),
        })
    }

    fn error(&self, key: &str, reason: &str) -> Error {
        Error::Config { server: self.server.into(), key: key.into(), reason: reason.into() }
    }
}

/// Returns whether only editors know the meaning of a text in `${…}`.
fn is_of_editors(name: &str) -> bool {
    let is_word = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    let is_asked_for = |(scheme, rest): (&str, &str)| SCHEMES.contains(&scheme) && is_word(rest);
    OF_EDITORS.contains(&name) || name.split_once(':').is_some_and(is_asked_for)
}

/// Returns whether a text can be the name of a variable.
fn is_identifier(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Returns whether a text is a common name of a variable.
fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::client::config::Endpoint;

    fn variable(name: &str) -> Option<String> {
        (name == "SET").then(|| "value".to_owned())
    }

    #[test]
    fn the_usual_entries_are_read_in_their_order() {
        let text = r#"{"mcpServers": {
            "z": {"command": "npx", "args": ["-y", "${SET}/${NOT:-a}"], "env": {"KEY": "${SET}"}, "cwd": "/data", "timeout": 5000},
            "off": {"command": "x", "disabled": true},
            "a": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${SET}"}}
        }, "other": 1}"#;
        let servers = read(text, variable).unwrap();
        assert_eq!(servers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["z", "a"]);
        let Endpoint::Command(command) = &servers[0].1.endpoint else { panic!("{servers:?}") };
        assert_eq!(command.arguments, ["-y", "value/a"]);
        assert_eq!(command.env, [("KEY".into(), "value".into())]);
        assert_eq!(command.folder.as_deref(), Some("/data".as_ref()));
        assert_eq!(servers[0].1.settings.idle_timeout, Duration::from_secs(5));
        let Endpoint::Address(address) = &servers[1].1.endpoint else { panic!("{servers:?}") };
        assert_eq!(address.headers, [("Authorization".to_owned(), "Bearer value".to_owned())]);
    }

    /// The names of the servers of a file.
    fn names(text: &str) -> Vec<String> {
        read(text, variable).unwrap().into_iter().map(|(name, _)| name).collect()
    }

    /// The only server of an entry.
    fn server(entry: &str) -> ServerConfig {
        read(&format!("{{\"mcpServers\": {{\"s\": {entry}}}}}"), variable).unwrap().remove(0).1
    }

    fn url(entry: &str) -> String {
        let Endpoint::Address(address) = server(entry).endpoint else { panic!("{entry}") };
        address.url
    }

    #[test]
    fn the_files_of_known_hosts_are_read() {
        // Claude Desktop keeps other settings in the same file.
        assert_eq!(names(r#"{"mcpServers": {"s": {"command": "x", "args": []}}, "globalShortcut": ""}"#), ["s"]);
        // VS Code allows comments and trailing commas.
        let code = "\u{feff}{\n  // ours\n  \"servers\": {\"s\": {\"type\": \"stdio\", \"command\": \"x\", \"args\": [\"http://y\", /* z */]},},\n  \"inputs\": [],\n}";
        assert_eq!(names(code), ["s"]);
        let Endpoint::Command(command) = read(code, variable).unwrap().remove(0).1.endpoint else { panic!() };
        assert_eq!(command.arguments, ["http://y"]);
        // Claude Code, Cursor, Roo Code, Cline, Windsurf, Gemini CLI and Copilot CLI.
        assert_eq!(url(r#"{"type": "http", "url": "http://x/mcp", "alwaysLoad": true}"#), "http://x/mcp");
        assert_eq!(url(r#"{"url": "http://x/${env:SET}"}"#), "http://x/value");
        assert_eq!(
            url(r#"{"type": "streamable-http", "url": "http://x/mcp", "alwaysAllow": ["a"], "watchPaths": []}"#),
            "http://x/mcp"
        );
        assert_eq!(
            url(r#"{"type": "streamableHttp", "url": "http://x/mcp", "autoApprove": [], "disabled": false}"#),
            "http://x/mcp"
        );
        assert_eq!(url(r#"{"serverUrl": "http://x/mcp", "headers": {"K": "${SET}"}}"#), "http://x/mcp");
        assert_eq!(url(r#"{"httpUrl": "http://x/mcp", "trust": true}"#), "http://x/mcp");
        assert!(matches!(
            server(r#"{"type": "local", "command": "x", "tools": ["*"]}"#).endpoint,
            Endpoint::Command(_)
        ));
    }

    #[test]
    fn only_the_servers_that_gemini_cli_uses_are_read() {
        let check = |chosen: &str, expected: &[&str]| {
            let servers = r#"{"a": {"command": "x"}, "b": {"command": "${NOT:-x}"}, "c": {"command": "x"}}"#;
            assert_eq!(names(&format!(r#"{{"mcpServers": {servers}, "mcp": {chosen}}}"#)), expected, "{chosen}");
        };
        check(r#"{"excluded": ["b"]}"#, &["a", "c"]);
        check(r#"{"allowed": ["c", "a", "d"], "serverCommand": ""}"#, &["a", "c"]);
        check(r#"{"allowed": ["a", "b"], "excluded": ["b"]}"#, &["a"]);
        check(r#"{"allowed": []}"#, &[]);
        check(r#"{"servers": {}}"#, &["a", "b", "c"]);
        check("null", &["a", "b", "c"]);
    }

    #[test]
    fn one_that_is_disabled_may_be_of_any_form() {
        assert_eq!(
            names(r#"{"mcpServers": {"a": {"disabled": true, "command": "${NOT}", "odd": 1}, "b": {"command": "x"}}}"#),
            ["b"]
        );
        assert_eq!(
            names(r#"{"mcpServers": {"a": {"enabled": false, "odd": 1}, "b": {"enabled": true, "command": "x"}}}"#),
            ["b"]
        );
    }

    #[test]
    fn a_dollar_that_begins_no_usual_name_is_a_text() {
        let server =
            server(r#"{"command": "x", "args": ["$5", "^a$", "$$", "$Home", "$(A)", "${NOT:-a$B}", "${:-$B}"]}"#);
        let Endpoint::Command(command) = server.endpoint else { panic!() };
        assert_eq!(command.arguments, ["$5", "^a$", "$$", "$Home", "$(A)", "a$B", "$B"]);
    }

    #[test]
    fn tools_are_selected_as_hosts_do() {
        let check = |keys: &str, only: Option<&[&str]>, without: &[&str]| {
            let tools = server(&format!(r#"{{"command": "x", {keys}}}"#)).settings.tools;
            let only = only.map(|only| only.iter().map(|tool| (*tool).to_owned()).collect());
            assert_eq!(
                (tools.only, tools.without),
                (only, without.iter().map(|tool| (*tool).to_owned()).collect()),
                "{keys}"
            );
        };
        check(r#""includeTools": ["a", "b"], "excludeTools": ["b"]"#, Some(&["a", "b"]), &["b"]);
        check(r#""tools": ["a"]"#, Some(&["a"]), &[]);
        check(r#""tools": ["*"], "disabledTools": ["b"]"#, None, &["b"]);
        check(r#""tools": []"#, Some(&[]), &[]);
    }

    #[test]
    fn a_timeout_is_read_where_it_leaves_no_doubt() {
        let check = |timeout: u64, expected: Duration| {
            let settings = server(&format!(r#"{{"command": "x", "timeout": {timeout}}}"#)).settings;
            assert_eq!(settings.idle_timeout, expected);
            assert!(settings.total_timeout >= expected);
        };
        check(60, Duration::from_secs(60));
        check(999, Duration::from_secs(999));
        check(3_601, Duration::from_millis(3_601));
        check(900_000, Duration::from_secs(900));
    }

    /// Checks the error of an entry that is refused.
    #[track_caller]
    fn check(entry: &str, expected: &str) {
        let text = format!("{{\"mcpServers\": {{\"s\": {entry}}}}}");
        assert_eq!(read(&text, variable).unwrap_err().to_string(), expected);
    }

    #[test]
    fn what_is_wrong_is_named() {
        check(r#"{"command": "x", "arg": []}"#, "MCP server `s`, key `arg`: the key is unknown here");
        check(r#"{"command": "x", "url": "y"}"#, "MCP server `s`: it must have either `command` or `url`");
        check(
            r#"{"url": "y", "type": "sse"}"#,
            "MCP server `s`, key `type`: `sse` is not spoken; servers speak streamable HTTP (`http`)",
        );
        check(r#"{"url": "x", "type": "websocket"}"#, "MCP server `s`, key `type`: `http` is expected");
        check(
            r#"{"url": "y", "serverUrl": "z"}"#,
            "MCP server `s`: it must have one of `url`, `serverUrl` and `httpUrl`",
        );
        check(
            r#"{"command": "x", "args": ["--port", 8080]}"#,
            "MCP server `s`, key `args`: a text is expected; write numbers, `true` and `false` in quotes",
        );
        check(
            r#"{"command": "x", "disabled": "yes"}"#,
            "MCP server `s`, key `disabled`: `true` or `false` is expected",
        );
        check(r#"{"command": "x", "enabled": 1}"#, "MCP server `s`, key `enabled`: `true` or `false` is expected");
        for timeout in ["1000", "3600"] {
            check(
                &format!(r#"{{"command": "x", "timeout": {timeout}}}"#),
                "MCP server `s`, key `timeout`: some programs mean seconds by that and some milliseconds; a number below 1000 is \
                read as seconds, one above 3600 as milliseconds",
            );
        }
        check(
            r#"{"command": "x", "timeout": 0}"#,
            "MCP server `s`, key `timeout`: a number of milliseconds is expected",
        );
        check(r#""canary""#, "MCP server `s`: an object is expected");
        check(r#"{"command": "x", "args": "y"}"#, "MCP server `s`, key `args`: an array of texts is expected");
        check(r#"{"command": "x"}, "s": {"command": "y"}"#, "MCP server `s`: the file has two servers of that name");
    }

    #[test]
    fn keys_that_mean_something_that_is_not_done_here_are_refused_with_what_to_do() {
        check(
            r#"{"command": "x", "envFile": ".env"}"#,
            "MCP server `s`, key `envFile`: no other file is read; write its variables under `env`, as `${NAME}`",
        );
        check(
            r#"{"httpUrl": "x", "targetAudience": "y"}"#,
            "MCP server `s`, key `targetAudience`: nobody is signed in here; write a token under `headers`",
        );
        check(
            r#"{"type": "http", "url": "x", "oauthClientId": "y"}"#,
            "MCP server `s`, key `oauthClientId`: nobody is signed in here; write a token under `headers`",
        );
    }

    #[test]
    fn what_stands_for_no_variable_is_refused_and_shown_if_it_is_a_name() {
        check(
            r#"{"command": "x", "env": {"KEY": "${input:key}"}}"#,
            "MCP server `s`, key `env`: only an editor knows `${input:key}`; write what it stands for, or `${NAME}`",
        );
        check(
            r#"{"command": "x", "env": {"KEY": "$MY_KEY"}}"#,
            "MCP server `s`, key `env`: `$MY_KEY` is a variable for some programs and a text for others; write `${MY_KEY}`",
        );
        check(
            r#"{"url": "x", "headers": {"Authorization": "Bearer $MY_KEY"}}"#,
            "MCP server `s`, key `headers`: `$MY_KEY` is a variable for some programs and a text for others; write `${MY_KEY}`",
        );
        for part in ["--key=$CANARY", "${SET}$CANARY", "$5 pa$CANARY1!ss"] {
            check(
                &format!(r#"{{"command": "x", "args": ["{part}"]}}"#),
                "MCP server `s`, key `args`: `$NAME` is a variable for some programs and a text for others; write `${NAME}`",
            );
        }
        check(
            r#"{"command": "x", "env": {"KEY": "${input:key:-canary}"}}"#,
            "MCP server `s`, key `env`: only an editor knows `${input:key}`; write what it stands for, or `${NAME}`",
        );
        for secret in ["pa${sk-canary-0123}ss", "${sk:canary}", "${}", "${input:sk canary}", "${1canary}"] {
            check(
                &format!(r#"{{"command": "x", "env": {{"KEY": "{secret}"}}}}"#),
                "MCP server `s`, key `env`: `${…}` is expected to hold the name of a variable, as in `${NAME}`",
            );
        }
        check(r#"{"command": "${NOT}"}"#, "MCP server `s`, key `command`: the variable `NOT` is not set");
    }

    #[test]
    fn a_text_that_is_no_file_of_servers_is_refused_without_its_values() {
        let check = |text: &str, expected: &str| {
            let error = read(text, variable).unwrap_err().to_string();
            assert!(error.starts_with(&format!("the MCP servers could not be read: {expected}")), "{error}");
            assert!(!error.contains("canary"), "{error}");
        };
        check("{}", EXPECTED);
        check(r#"{"mcpServers": {}, "servers": {}}"#, EXPECTED);
        check(r#"{"mcpServers": "canary"}"#, EXPECTED);
        check(r#"["canary"]"#, EXPECTED);
        check(r#"{"mcpServers": {}, "mcp": {"allowed": "canary"}}"#, "`allowed` and `excluded` of `mcp` are expected");
        check(r#"{"mcpServers": {"canary" 1}}"#, "expected `:` at line 1 column 26");
        check("", "EOF while parsing");
    }
}

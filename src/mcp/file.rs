//! The usual JSON in which servers are written down: `{"mcpServers": {name: {"command": …} | {"url": …}}}`.
//!
//! Nothing is ever looked for: only the text, or the file, that the program names is read.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::error::Error;
use super::remote::Server;

/// Keys that other programs write beside, which mean nothing here.
const IGNORED: [&str; 4] = ["type", "description", "autoApprove", "alwaysAllow"];

/// Reads the servers in their order, leaving out those that are disabled. `variable` gives what `${NAME}` stands for.
pub(super) fn read(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Vec<(String, Server)>, Error> {
    let file: File =
        serde_json::from_str(text).map_err(|error| Error::Unreadable { reason: error.to_string().into() })?;
    let mut servers: Vec<(String, Server)> = Vec::new();
    for (name, entry) in file.servers.0 {
        let mut entry = Entry { server: &name, rest: entry, variable: &variable };
        let server = entry.server()?;
        if servers.iter().any(|(other, _)| *other == name) {
            return Err(entry.error("", "the file has two servers of that name"));
        }
        servers.extend(server.map(|server| (name, server)));
    }
    Ok(servers)
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "mcpServers")]
    servers: Ordered,
}

/// The members of an object in the order in which they are written.
struct Ordered(Vec<(String, Map<String, Value>)>);

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

/// One server's entry; keys that were read are gone from it.
struct Entry<'a, V> {
    server: &'a str,
    rest: Map<String, Value>,
    variable: &'a V,
}

impl<V: Fn(&str) -> Option<String>> Entry<'_, V> {
    /// The server, unless it is disabled.
    fn server(&mut self) -> Result<Option<Server>, Error> {
        let kind = self.text("type")?;
        let is_disabled = self.rest.remove("disabled").is_some_and(|value| value == true);
        let timeout = self.timeout()?;
        let mut server = match (self.text("command")?, self.text("url")?) {
            (Some(program), None) => self.command(program)?,
            (None, Some(url)) => {
                if kind.as_deref() == Some("sse") {
                    return Err(self.error("type", "`sse` is not spoken; servers speak streamable HTTP (`http`)"));
                }
                self.pairs("headers")?
                    .into_iter()
                    .fold(Server::http(url), |server, (name, value)| server.header(name, value))
            }
            _ => return Err(self.error("", "it must have either `command` or `url`")),
        };
        if let Some(timeout) = timeout {
            server = server.timeout(timeout);
        }
        IGNORED.iter().for_each(|key| drop(self.rest.remove(*key)));
        if let Some(key) = self.rest.keys().next() {
            return Err(self.error(key, "the key is unknown here"));
        }
        Ok((!is_disabled).then_some(server))
    }

    fn command(&mut self, program: String) -> Result<Server, Error> {
        let arguments = match self.rest.remove("args") {
            None => Vec::new(),
            Some(Value::Array(values)) => {
                values.into_iter().map(|value| self.string("args", value)).collect::<Result<_, _>>()?
            }
            Some(_) => return Err(self.error("args", "an array of texts is expected")),
        };
        let mut server = Server::stdio(program, arguments);
        for (name, value) in self.pairs("env")? {
            server = server.env(name, value);
        }
        Ok(match self.text("cwd")? {
            Some(folder) => server.folder(folder),
            None => server,
        })
    }

    /// In milliseconds.
    fn timeout(&mut self) -> Result<Option<Duration>, Error> {
        let Some(value) = self.rest.remove("timeout") else { return Ok(None) };
        let millis = value.as_u64().ok_or_else(|| self.error("timeout", "a number of milliseconds is expected"))?;
        Ok(Some(Duration::from_millis(millis)))
    }

    fn text(&mut self, key: &str) -> Result<Option<String>, Error> {
        self.rest.remove(key).map(|value| self.string(key, value)).transpose()
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
        let Value::String(text) = value else { return Err(self.error(key, "a text is expected")) };
        self.expand(key, &text)
    }

    /// Replaces `${NAME}` and `${NAME:-default}`.
    fn expand(&self, key: &str, text: &str) -> Result<String, Error> {
        let (mut expanded, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            let Some((inside, after)) = after.split_once('}') else { break };
            let (name, default) = inside.split_once(":-").map_or((inside, None), |(name, value)| (name, Some(value)));
            let value = (self.variable)(name).filter(|value| default.is_none() || !value.is_empty());
            let value = value.or_else(|| default.map(str::to_owned));
            expanded.push_str(before);
            expanded.push_str(&value.ok_or_else(|| self.error(key, &format!("the variable `{name}` is not set")))?);
            rest = after;
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    fn error(&self, key: &str, reason: &str) -> Error {
        Error::Entry { server: self.server.into(), key: key.into(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::remote::Reached;

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
        let Reached::Command(command) = &servers[0].1.reached else { panic!("{servers:?}") };
        assert_eq!(command.arguments, ["-y", "value/a"]);
        assert_eq!(command.env, [("KEY".into(), "value".into())]);
        assert_eq!(command.folder.as_deref(), Some("/data".as_ref()));
        assert_eq!(servers[0].1.settings.timeout, Duration::from_secs(5));
        let Reached::Address(address) = &servers[1].1.reached else { panic!("{servers:?}") };
        assert_eq!(address.headers, [("Authorization".to_owned(), "Bearer value".to_owned())]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |entry: &str, expected: &str| {
            let text = format!("{{\"mcpServers\": {{\"s\": {entry}}}}}");
            assert_eq!(read(&text, variable).unwrap_err().to_string(), expected);
        };
        check(r#"{"command": "x", "arg": []}"#, "MCP server `s`, key `arg`: the key is unknown here");
        check(r#"{"command": "x", "url": "y"}"#, "MCP server `s`: it must have either `command` or `url`");
        check(
            r#"{"url": "y", "type": "sse"}"#,
            "MCP server `s`, key `type`: `sse` is not spoken; servers speak streamable HTTP (`http`)",
        );
        check(r#"{"command": "${NOT}"}"#, "MCP server `s`, key `command`: the variable `NOT` is not set");
        check(r#"{"command": "x", "args": "y"}"#, "MCP server `s`, key `args`: an array of texts is expected");
        check(r#"{"command": "x"}, "s": {"command": "y"}"#, "MCP server `s`: the file has two servers of that name");
    }
}

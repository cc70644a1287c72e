//! What is secret in how a server is reached, and texts without it. Pure.
//!
//! A key cannot be told from another value. So where something failed, and in logs, everything is hidden that the
//! configuration gives to the server. A result would lose the names and addresses that a model works with: there only
//! credentials are hidden, which are known by their place (a bearer token, a password or a key in a URL) or by their name.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use url::Url;
use url::form_urlencoded::byte_serialize;

use super::remote::{Address, Command};
use crate::secrets::Secrets;

/// What the names of credentials end with, in lower case.
const CREDENTIALS: [&str; 12] = [
    "key",
    "token",
    "secret",
    "password",
    "passwd",
    "pass",
    "pwd",
    "passphrase",
    "credential",
    "auth",
    "authorization",
    "cookie",
];
/// The shortest part of a URL that is taken for a key, in bytes.
const SHORTEST_KEY: usize = 16;
/// The longest part of an argument that is a path or the name of a package, in bytes. Keys are longer.
const LONGEST_PLAIN: usize = 32;

/// The secrets of one server's configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Redaction {
    /// What no text of the server may show.
    pub(super) credentials: Secrets,
    /// The credentials and all else that the server was given: what no text about a failure and no log may show.
    pub(super) given: Secrets,
    /// Whether there is anything of these.
    pub(super) hides: bool,
}

impl Redaction {
    /// The environment and the arguments of a command.
    pub(super) fn of_command(command: &Command) -> Self {
        let mut redaction = Self::default();
        for (name, value) in &command.env {
            redaction.add_named(&name.to_string_lossy(), &value.to_string_lossy());
        }
        let mut option = Cow::Borrowed("");
        for argument in &command.arguments {
            let argument = argument.to_string_lossy();
            redaction.add_named(&option, &argument);
            // Its value is the next argument.
            let is_option = argument.starts_with('-') && !argument.contains('=');
            option = if is_option { argument } else { Cow::Borrowed("") };
        }
        redaction
    }

    /// The token, the headers, and of the URL all but the host.
    pub(super) fn of_address(address: &Address) -> Self {
        let mut redaction = Self::default();
        if let Some(token) = &address.bearer {
            redaction.add(true, token);
        }
        for (name, value) in &address.headers {
            redaction.add_named(name, value);
        }
        redaction.hide(false, &address.url);
        match url(&address.url) {
            Some(url) => redaction.add_url(&url, &address.url),
            None => redaction.add_words(false, &address.url, |c| "/?&=@:# ".contains(c)),
        }
        redaction
    }

    fn add_named(&mut self, name: &str, value: &str) {
        let is_credential = is_credential(name);
        if is_credential || !is_plain(value) {
            self.add(is_credential, value);
        }
    }

    /// A value and what stands in it: `Bearer X`, `name=X`, `{"name": "X"}`, a URL.
    fn add(&mut self, is_credential: bool, value: &str) {
        self.hide(is_credential, value);
        if let Some(url) = url(value) {
            return self.add_url(&url, value);
        }
        if let Ok(serde_json::Value::Object(members)) = serde_json::from_str(value) {
            for (name, member) in &members {
                let text = member.as_str().map_or_else(|| member.to_string(), str::to_owned);
                self.add(self::is_credential(name), &text);
            }
            return;
        }
        if value.contains(is_separator) {
            return self.add_words(is_credential, value, is_separator);
        }
        if let Some((name, rest)) = value.split_once(['=', ':']) {
            self.add(is_credential || self::is_credential(name), rest);
        }
    }

    /// The words of a text but those that are only letters, for which `Bearer` and `Authorization` are too. The last may
    /// be a password.
    fn add_words(&mut self, mut is_credential: bool, text: &str, is_separator: impl Fn(char) -> bool) {
        let mut words = text.split(is_separator).filter(|word| !word.is_empty()).peekable();
        while let Some(word) = words.next() {
            let is_word = word.chars().all(|c| c.is_alphabetic() || ":-.".contains(c));
            if !is_word || words.peek().is_none() {
                self.add(is_credential, word);
            }
            is_credential |= self::is_credential(word);
        }
    }

    /// The user, the query and the path, as they are written, as they are sent, and as they are meant.
    fn add_url(&mut self, url: &Url, written: &str) {
        let user = written.split_once("://").and_then(|(_, rest)| rest.split('/').next()?.rsplit_once('@'));
        if let Some((user, _)) = user {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            for (name, password) in [(name, password), (url.username(), url.password().unwrap_or_default())] {
                self.hide(password.is_empty(), name);
                self.hide(true, password);
            }
            // As it is sent: https://www.rfc-editor.org/rfc/rfc7617
            self.hide(true, &STANDARD.encode(format!("{name}:{password}")));
        }
        let query = written.split('#').next().and_then(|written| written.split_once('?')).map(|(_, query)| query);
        for pair in query.into_iter().chain(url.query()).flat_map(|query| query.split('&')) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, pair));
            self.hide(is_credential(name) || is_key(value), value);
        }
        for (name, value) in url.query_pairs() {
            self.hide(is_credential(&name) || is_key(&value), &value);
        }
        for part in url.path_segments().into_iter().flatten().chain(url.fragment()) {
            self.hide(is_key(part), part);
        }
    }

    /// Hides a value in every form that texts are known to show.
    fn hide(&mut self, is_credential: bool, value: &str) {
        self.hides = true;
        let escaped = serde_json::Value::from(value).to_string();
        let encoded: String = byte_serialize(value.as_bytes()).collect();
        let spaced = encoded.replace('+', "%20");
        for form in [value, &escaped[1..escaped.len() - 1], &encoded, &spaced].into_iter().chain(value.lines()) {
            self.given.add(form.into());
            if is_credential {
                self.credentials.add(form.into());
            }
        }
    }
}

fn url(text: &str) -> Option<Url> {
    Url::parse(text).ok().filter(Url::has_host)
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || "\"'`,;|(){}[]<>".contains(c)
}

/// Whether values of this name are credentials: `X-Api-Key`, `GITHUB_TOKEN`, `--password`, but not `AUTH_TYPE`.
fn is_credential(name: &str) -> bool {
    let name = name.to_lowercase();
    let last = name.split(|c: char| !c.is_alphabetic()).rfind(|word| !word.is_empty()).unwrap_or_default();
    let singular = last.strip_suffix('s').unwrap_or(last);
    last == "pat" || CREDENTIALS.iter().any(|end| last.ends_with(end) || singular.ends_with(end))
}

/// Whether a part of a URL is a key, as some services have it in their path.
fn is_key(part: &str) -> bool {
    part.len() >= SHORTEST_KEY && part.contains(|c: char| c.is_ascii_digit()) && part.contains(char::is_alphabetic)
}

/// Whether an argument or a variable is an option without a value, a path, or the name of a package with its scope, which
/// messages need to be understood.
fn is_plain(value: &str) -> bool {
    let is_option = value.starts_with("--") && !value.contains('=');
    let is_path = ["/", "./", "../", "~/", "@"].iter().any(|start| value.starts_with(start));
    (is_option || is_path)
        && value.split(['/', '@']).all(|part| part.len() <= LONGEST_PLAIN && !part.contains([' ', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::remote::{Reached, Server};

    fn redaction(server: &Server) -> Redaction {
        match &server.reached {
            Reached::Command(command) => Redaction::of_command(command),
            Reached::Address(address) => Redaction::of_address(address),
        }
    }

    /// What is left of a text where something failed, and what of a result.
    #[track_caller]
    fn check(server: &Server, text: &str, failure: &str, result: &str) {
        let redaction = redaction(server);
        let shown = (redaction.given.redact(text), redaction.credentials.redact(text));
        assert_eq!((&*shown.0, &*shown.1), (failure, result), "{text}");
    }

    #[test]
    fn credentials_are_hidden_in_every_text_and_what_else_a_command_is_given_where_it_fails() {
        let server = Server::stdio(
            "npx",
            ["--api-key", "key-12345", "--mode=careful", "--pw", "--token=tok-12345", "Asia/Seoul"],
        );
        let server = server.env("DB_PASSWORD", "correct horse").env("AUTH_REGION", "eu-west-1");
        let hidden = "[redacted]";
        for credential in ["key-12345", "tok-12345", "correct horse"] {
            check(&server, credential, hidden, hidden);
        }
        for value in ["careful", "eu-west-1", "Asia/Seoul"] {
            check(&server, value, hidden, value);
        }
        for plain in ["--api-key", "--mode", "DB_PASSWORD", "npx"] {
            check(&server, plain, plain, plain);
        }
    }

    #[test]
    fn options_paths_and_packages_can_be_read_and_keys_that_look_like_them_cannot() {
        let arguments = ["-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "/home/me/notes", "--read-only"];
        let server = Server::stdio("npx", arguments);
        for plain in arguments {
            check(&server, plain, plain, plain);
        }
        let base64 = "/abcdefghijklmnopqrstuvwxyz0123456789/ABC=";
        check(&Server::stdio("x", [base64]), base64, "[redacted]", base64);
    }

    #[test]
    fn a_value_is_hidden_within_others_and_in_every_form() {
        let hidden = "[redacted]";
        let header = Server::http("https://example.com/mcp").header("Authorization", "Bearer abc-12345");
        check(&header, "bad token abc-12345", "bad token [redacted]", "bad token [redacted]");
        check(&header, "Bearer of news", "Bearer of news", "Bearer of news");
        let argument = Server::stdio("npx", ["--header", "Authorization: Bearer ghijklmnop"]);
        check(&argument, "ghijklmnop", hidden, hidden);
        let json = Server::stdio("x", [""; 0]).env("HEADERS", r#"{"Authorization": "Bearer ntn_12345"}"#);
        check(&json, "ntn_12345", hidden, hidden);
        let quoted = Server::http("https://example.com/mcp").bearer_token("a\"b c/12345");
        check(
            &quoted,
            r#"{"m":"a\"b c/12345"} a%22b%20c%2F12345 a%22b+c%2F12345"#,
            r#"{"m":"[redacted]"} [redacted] [redacted]"#,
            r#"{"m":"[redacted]"} [redacted] [redacted]"#,
        );
        let account = r#"{"project_id": "project-12345", "key": {"private": "a", "private_key": "pem-12345"}}"#;
        let account = Server::stdio("x", [""; 0]).env("GOOGLE_CREDENTIALS", account);
        check(&account, "project-12345", hidden, "project-12345");
        check(&account, "pem-12345", hidden, hidden);
        let lines = Server::stdio("x", [""; 0]).env("PRIVATE_KEY", "first line\nsecond line");
        check(&lines, "second line", hidden, hidden);
    }

    #[test]
    fn of_an_address_only_the_host_is_shown() {
        let address = "https://me:pass-12345@example.com:8080/s/path-12345/9f14e45fceea167a/mcp?token=query 12345&zone=zone-12345&k=0123456789-abcdef#frag-12345";
        let server = Server::http(address);
        let hidden = "[redacted]";
        for credential in ["pass-12345", "query 12345", "query%2012345", "bWU6cGFzcy0xMjM0NQ=="] {
            check(&server, credential, hidden, hidden);
        }
        for key in ["9f14e45fceea167a", "0123456789-abcdef"] {
            check(&server, key, hidden, hidden);
        }
        for part in ["path-12345", "zone-12345", "frag-12345"] {
            check(&server, part, hidden, part);
        }
        check(
            &server,
            address,
            hidden,
            "https://me:[redacted]@example.com:8080/s/path-12345/[redacted]/mcp?token=[redacted]&zone=zone-12345&k=[redacted]#frag-12345",
        );
        check(
            &Server::http("ht!tp://key-12345"),
            "relative URL ht!tp://key-12345 or key-12345",
            "relative URL [redacted] or [redacted]",
            "relative URL ht!tp://key-12345 or key-12345",
        );
        let database = Server::stdio("x", ["postgres://me:pass-12345@host/db"]);
        check(&database, "pass-12345", hidden, hidden);
    }
}

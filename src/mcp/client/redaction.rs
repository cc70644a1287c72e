//! The secrets in a server's configuration, and texts without them. Pure.
//!
//! A key looks like any other value. So in errors and logs, all values are hidden that the configuration gives to the
//! server. In a result that would hide the names and addresses that a model works with: there only credentials are
//! hidden, which are known by their position (a bearer token, a password or a key in a URL) or by their name.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;
use url::form_urlencoded::byte_serialize;

use crate::mcp::client::config::{Address, Command};
use crate::mcp::client::visible::visible;
use crate::secrets::{MIN_LENGTH, Secrets};

/// The endings of words in the names of credentials, in lower case.
const CREDENTIALS: [&str; 13] = [
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
    "authentication",
    "cookie",
];
/// Words after those that make the name one of something else: `AUTH_TYPE`, `TOKEN_FILE`.
const ATTRIBUTES: [&str; 30] = [
    "algorithm",
    "audience",
    "column",
    "count",
    "dir",
    "domain",
    "email",
    "enabled",
    "endpoint",
    "expiry",
    "field",
    "file",
    "format",
    "header",
    "host",
    "id",
    "issuer",
    "limit",
    "method",
    "mode",
    "name",
    "path",
    "provider",
    "region",
    "scope",
    "timeout",
    "type",
    "url",
    "user",
    "zone",
];
/// The characters that [`encodeURIComponent`](https://tc39.es/ecma262/#sec-encodeuricomponent-uricomponent) encodes.
const COMPONENT: &AsciiSet = &UNRESERVED.remove(b'!').remove(b'*').remove(b'\'').remove(b'(').remove(b')');
/// All characters but the [unreserved ones](https://www.rfc-editor.org/rfc/rfc3986#section-2.3) of a URL.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// All characters but the unreserved ones and `/`, for a whole path.
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');
/// The shortest part of a URL that counts as a key, in bytes.
const MIN_KEY: usize = 16;
/// The longest part of an argument that is a path or the name of a package, in bytes. Keys are longer.
const MAX_PLAIN: usize = 32;

/// The secrets of one server's configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redaction {
    /// The values that are removed from every text of the server.
    credentials: Secrets,
    /// The credentials and all other values of the configuration, which are removed from errors and logs.
    given: Secrets,
}

impl Redaction {
    /// Collects the environment and the arguments of a command.
    pub(crate) fn of_command(command: &Command) -> Self {
        let mut redaction = Self::default();
        for (name, value) in &command.env {
            redaction.add_named(&name.to_string_lossy(), &value.to_string_lossy());
        }
        let mut option = Cow::Borrowed("");
        for argument in &command.arguments {
            let argument = argument.to_string_lossy();
            redaction.add_named(&option, &argument);
            // The value of an option is the next argument.
            let is_option = argument.starts_with('-') && !argument.contains('=');
            option = if is_option { argument } else { Cow::Borrowed("") };
        }
        redaction
    }

    /// Collects the token, the headers, and all parts of the URL but the host.
    pub(crate) fn of_address(address: &Address) -> Self {
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

    /// A text of the server without its credentials.
    pub(crate) fn of_result<'t>(&self, text: &'t str) -> Cow<'t, str> {
        redact(&self.credentials, text)
    }

    /// A text about an error, or for a log, without any value of the configuration.
    pub(crate) fn of_failure<'t>(&self, text: &'t str) -> Cow<'t, str> {
        redact(&self.given, text)
    }

    /// Returns whether there is nothing to hide.
    pub(crate) fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    fn add_named(&mut self, name: &str, value: &str) {
        let is_credential = is_credential(name);
        if is_credential || !is_plain(value) {
            self.add(is_credential, value);
        }
    }

    /// Adds a value and its parts: `Bearer X`, `name=X`, `{"name": "X"}`, a URL.
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

    /// Adds the words of a text. A word of letters only, such as `Bearer` or `Authorization`, is skipped unless it is
    /// the last one, which may be a password.
    fn add_words(&mut self, mut is_credential: bool, text: &str, is_separator: impl Fn(char) -> bool) {
        let mut words = text.split(is_separator).filter(|word| !word.is_empty()).peekable();
        let mut is_basic = false;
        while let Some(word) = words.next() {
            if is_basic && let Some((user, password)) = basic(word) {
                self.hide(true, &format!("{user}:{password}"));
                self.hide(true, &password);
            }
            is_basic = word.eq_ignore_ascii_case("basic");
            let is_word = word.chars().all(|c| c.is_alphabetic() || ":-.".contains(c));
            if !is_word || words.peek().is_none() {
                self.add(is_credential, word);
            }
            is_credential |= self::is_credential(word);
        }
    }

    /// Adds the user, the query and the path of a URL: as written, as sent, and decoded.
    fn add_url(&mut self, url: &Url, written: &str) {
        let user = written.split_once("://").and_then(|(_, rest)| rest.split('/').next()?.rsplit_once('@'));
        if let Some((user, _)) = user {
            let pair = user.split_once(':').unwrap_or((user, ""));
            let meant = (decoded(pair.0), decoded(pair.1));
            for (name, password) in [pair, (url.username(), url.password().unwrap_or_default()), (&*meant.0, &*meant.1)]
            {
                self.hide(password.is_empty(), name);
                self.hide(true, password);
                // In the form in which it is sent: https://www.rfc-editor.org/rfc/rfc7617
                self.hide(true, &STANDARD.encode(format!("{name}:{password}")));
            }
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
            self.hide(is_key(part), &decoded(part));
        }
    }

    /// Adds a value in every form in which texts are known to show it.
    fn hide(&mut self, is_credential: bool, value: &str) {
        if value.len() < MIN_LENGTH {
            return;
        }
        for form in forms(value) {
            if is_credential {
                self.credentials.add(form.as_str().into());
            }
            self.given.add(form.into());
        }
    }
}

/// A text without these values, even if invisible characters stand between their characters.
fn redact<'t>(secrets: &Secrets, text: &'t str) -> Cow<'t, str> {
    let redacted = secrets.redact(text);
    if let Cow::Owned(shown) = visible(&redacted)
        && let Cow::Owned(shown) = secrets.redact(&shown)
    {
        return Cow::Owned(shown);
    }
    redacted
}

/// The forms of a value: unchanged, line by line, in JSON, in URLs, and in base64.
fn forms(value: &str) -> Vec<String> {
    let json = serde_json::Value::from(value).to_string();
    let json = &json[1..json.len() - 1];
    let form: String = byte_serialize(value.as_bytes()).collect();
    let spaced = form.replace('+', "%20");
    let encoded = [COMPONENT, UNRESERVED, PATH].map(|set| utf8_percent_encode(value, set).to_string());
    let mut forms: Vec<String> = encoded.into_iter().chain([form, spaced]).collect();
    forms.extend(forms.iter().map(|form| lower_hex(form)).collect::<Vec<_>>());
    forms.extend([json.to_owned(), json.replace('/', "\\/"), value.to_owned()]);
    forms.extend([&STANDARD, &STANDARD_NO_PAD, &URL_SAFE_NO_PAD].map(|base64| base64.encode(value)));
    forms.extend(value.lines().map(str::to_owned));
    forms
}

/// A percent-encoded text with `%2f` in place of `%2F`.
fn lower_hex(encoded: &str) -> String {
    let mut digits = 0;
    let lower = |c: char| {
        digits = if c == '%' { 3_u8 } else { digits.saturating_sub(1) };
        if digits > 0 { c.to_ascii_lowercase() } else { c }
    };
    encoded.chars().map(lower).collect()
}

fn decoded(part: &str) -> Cow<'_, str> {
    percent_decode_str(part).decode_utf8_lossy()
}

/// The user and the password of [basic authentication](https://www.rfc-editor.org/rfc/rfc7617).
fn basic(base64: &str) -> Option<(String, String)> {
    let pair = String::from_utf8(STANDARD_NO_PAD.decode(base64.trim_end_matches('=')).ok()?).ok()?;
    pair.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
}

fn url(text: &str) -> Option<Url> {
    Url::parse(text).ok().filter(Url::has_host)
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || "\"'`,;|(){}[]<>".contains(c)
}

/// Returns whether values of this name are credentials: `X-Api-Key`, `GITHUB_TOKEN_V2`, `--password`, but not
/// `AUTH_TYPE`.
fn is_credential(name: &str) -> bool {
    let name = name.to_lowercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()).collect();
    let is_one = |word: &&str| {
        let singular = word.strip_suffix('s').unwrap_or(word);
        *word == "pat" || CREDENTIALS.iter().any(|end| word.ends_with(end) || singular.ends_with(end))
    };
    let place = words.iter().rposition(is_one);
    place.is_some_and(|place| !words[place + 1..].iter().any(|word| ATTRIBUTES.contains(word)))
}

/// Returns whether a part of a URL is a key, which some services put into the path.
fn is_key(part: &str) -> bool {
    part.len() >= MIN_KEY && part.contains(|c: char| c.is_ascii_digit()) && part.contains(char::is_alphabetic)
}

/// Returns whether an argument or a variable is an option without a value, a path, or the name of a package with its
/// scope. Error messages need these to be understood.
fn is_plain(value: &str) -> bool {
    let is_option = value.starts_with("--") && !value.contains('=');
    let is_path = ["/", "./", "../", "~/", "@"].iter().any(|start| value.starts_with(start));
    (is_option || is_path) && value.split(['/', '@']).all(|part| part.len() <= MAX_PLAIN && !part.contains([' ', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::client::config::{Endpoint, ServerConfig};

    fn redaction(server: &ServerConfig) -> Redaction {
        match &server.endpoint {
            Endpoint::Command(command) => Redaction::of_command(command),
            Endpoint::Address(address) => Redaction::of_address(address),
        }
    }

    /// Checks a text after redaction as an error, and as a result.
    #[track_caller]
    fn check(server: &ServerConfig, text: &str, failure: &str, result: &str) {
        let redaction = redaction(server);
        let shown = (redaction.of_failure(text), redaction.of_result(text));
        assert_eq!((&*shown.0, &*shown.1), (failure, result), "{text}");
    }

    #[test]
    fn credentials_are_hidden_in_every_text_and_what_else_a_command_is_given_where_it_fails() {
        let server = ServerConfig::stdio(
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
        let server = ServerConfig::stdio("npx", arguments);
        for plain in arguments {
            check(&server, plain, plain, plain);
        }
        let base64 = "/abcdefghijklmnopqrstuvwxyz0123456789/ABC=";
        check(&ServerConfig::stdio("x", [base64]), base64, "[redacted]", base64);
    }

    #[test]
    fn a_value_is_hidden_within_others_and_in_every_form() {
        let hidden = "[redacted]";
        let header = ServerConfig::http("https://example.com/mcp").header("Authorization", "Bearer abc-12345");
        check(&header, "bad token abc-12345", "bad token [redacted]", "bad token [redacted]");
        check(&header, "Bearer of news", "Bearer of news", "Bearer of news");
        let argument = ServerConfig::stdio("npx", ["--header", "Authorization: Bearer ghijklmnop"]);
        check(&argument, "ghijklmnop", hidden, hidden);
        let json = ServerConfig::stdio("x", [""; 0]).env("HEADERS", r#"{"Authorization": "Bearer ntn_12345"}"#);
        check(&json, "ntn_12345", hidden, hidden);
        let quoted = ServerConfig::http("https://example.com/mcp").bearer_token("a\"b c/12345");
        check(
            &quoted,
            r#"{"m":"a\"b c/12345"} a%22b%20c%2F12345 a%22b+c%2F12345"#,
            r#"{"m":"[redacted]"} [redacted] [redacted]"#,
            r#"{"m":"[redacted]"} [redacted] [redacted]"#,
        );
        let account = r#"{"project_id": "project-12345", "key": {"private": "a", "private_key": "pem-12345"}}"#;
        let account = ServerConfig::stdio("x", [""; 0]).env("GOOGLE_CREDENTIALS", account);
        check(&account, "project-12345", hidden, "project-12345");
        check(&account, "pem-12345", hidden, hidden);
        let basic = ServerConfig::http("https://example.com/mcp").header("Authorization", "Basic bWU6aHVudGVyMjI=");
        check(&basic, "me:hunter22 or hunter22", "[redacted] or [redacted]", "[redacted] or [redacted]");
        let odd = ServerConfig::stdio("x", [""; 0]).env("NOTION_TOKEN_V2", "abc/def+ghi~0!");
        for form in ["abc/def%2Bghi~0%21", "abc%2fdef%2bghi~0!", "abc\\/def+ghi~0!", "YWJjL2RlZitnaGl-MCE"] {
            check(&odd, form, hidden, hidden);
        }
        for between in ["\u{200b}", "\u{0}", "\u{e0041}"] {
            check(&odd, &format!("it is ab{between}c/def+ghi~0!"), "it is [redacted]", "it is [redacted]");
        }
        let lines = ServerConfig::stdio("x", [""; 0]).env("PRIVATE_KEY", "first line\nsecond line");
        check(&lines, "second line", hidden, hidden);
    }

    #[test]
    fn of_an_address_only_the_host_is_shown() {
        let address = "https://me:pass-12345@example.com:8080/s/path-12345/9f14e45fceea167a/mcp?token=query 12345&zone=zone-12345&k=0123456789-abcdef#frag-12345";
        let server = ServerConfig::http(address);
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
            &ServerConfig::http("ht!tp://key-12345"),
            "relative URL ht!tp://key-12345 or key-12345",
            "relative URL [redacted] or [redacted]",
            "relative URL ht!tp://key-12345 or key-12345",
        );
        let database = ServerConfig::stdio("x", ["postgres://me:p%40ss%2Fw0rd@host/db"]);
        for form in ["p%40ss%2Fw0rd", "p@ss/w0rd", "p%40ss%2fw0rd", "bWU6cEBzcy93MHJk"] {
            check(&database, form, hidden, hidden);
        }
        let path = ServerConfig::http("https://example.com/s/abc123def456ghi789%3D%3D/mcp");
        check(&path, "abc123def456ghi789==", hidden, hidden);
    }
}

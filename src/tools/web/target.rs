//! The URLs that may be fetched, and how a URL is shown. Pure.
//!
//! There is one parser of URLs here, that of the WHATWG, and the client gets what it made. So a URL is checked as it is
//! used: with numbers as addresses, names in lower case and ASCII, and without white space in it.

use url::{Host, Url};

use super::Settings;

/// Parses a URL and checks it.
///
/// # Errors
///
/// The reason for the model. It never shows the text, which may have a password in it.
pub(super) fn parse(text: &str, settings: &Settings) -> Result<Url, String> {
    if text.len() > MAX_LENGTH {
        return Err(format!("the URL has {} bytes; at most {MAX_LENGTH} are allowed", text.len()));
    }
    let mut url =
        Url::parse(text).map_err(|error| format!("invalid URL: {error}; expected one with http:// or https://"))?;
    url.set_fragment(None);
    check(&url, settings).map(|()| url)
}

/// Returns where a redirect leads. The credentials of a URL are not passed on, and those of a redirect are not used.
pub(super) fn redirected(from: &Url, location: &str, settings: &Settings) -> Result<Url, String> {
    let mut url = from.join(location).map_err(|error| format!("a redirect to an invalid URL: {error}"))?;
    url.set_fragment(None);
    // They fail for URLs without a host, which the check refuses.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let of_redirect = |problem| format!("a redirect is not followed: {problem}");
    if url.as_str().len() > MAX_LENGTH {
        return Err(of_redirect(format!("its URL has more than {MAX_LENGTH} bytes")));
    }
    check(&url, settings).map_err(of_redirect)?;
    match from.scheme() == "https" && url.scheme() == "http" {
        true => Err(of_redirect(format!("it leads from https to http, to {}", shown(&url)))),
        false => Ok(url),
    }
}

const MAX_LENGTH: usize = 8 << 10;

/// Checks the scheme, the port, and an address in place of a name. Names are checked when they are resolved.
fn check(url: &Url, settings: &Settings) -> Result<(), String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("`{}` URLs are not fetched; expected http or https", cut(url.scheme(), 30)));
    }
    let port = url.port_or_known_default().unwrap_or_default();
    if !settings.ports.contains(&port) {
        let allowed: Vec<_> = settings.ports.iter().map(u16::to_string).collect();
        return Err(format!("port {port} is not allowed; allowed are {}", allowed.join(", ")));
    }
    let (may, host) = match url.host() {
        Some(Host::Ipv4(address)) => (settings.addresses.permit(address.into()), address.to_string()),
        Some(Host::Ipv6(address)) => (settings.addresses.permit(address.into()), address.to_string()),
        Some(Host::Domain(name)) => (settings.has_loopback || !is_localhost(name), name.to_owned()),
        None => return Err("the URL names no host".to_owned()),
    };
    match may {
        true => Ok(()),
        false => Err(format!("`{}` is not a public address; only public ones are fetched", cut(&host, 100))),
    }
}

/// Returns whether a name means [this machine](https://www.rfc-editor.org/rfc/rfc6761#section-6.3).
fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name == "localhost" || name.ends_with(".localhost")
}

/// Returns a URL as it may be shown: without a user, a password and a fragment, and with a mark in place of the values
/// of parameters that are secret by their names.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    let query = url.query().map(|query| query.split('&').map(redacted).collect::<Vec<_>>().join("&"));
    url.set_query(query.as_deref());
    cut(url.as_str(), MAX_SHOWN).to_owned()
}

const MAX_SHOWN: usize = 2 << 10;

fn redacted(parameter: &str) -> String {
    let (name, _) = parameter.split_once('=').unwrap_or((parameter, ""));
    let decoded = url::form_urlencoded::parse(name.as_bytes()).map(|(name, _)| name.into_owned()).next();
    match decoded.is_some_and(|decoded| is_secret(&decoded)) {
        true => format!("{name}=redacted"),
        false => parameter.to_owned(),
    }
}

/// Returns whether the value of a parameter is secret.
pub(super) fn is_secret(name: &str) -> bool {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let words = ["token", "secret", "signature", "passw", "credential", "session", "apikey", "accesskey", "jwt"];
    words.iter().any(|word| name.contains(word))
        || ["key", "sig", "auth", "authorization", "code", "pass", "pwd", "sid"].contains(&&*name)
}

/// Returns the beginning of a text.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::super::Web;
    use super::*;

    fn check_error(url: &str, expected: &str) {
        assert_eq!(parse(url, &Web::new().settings).map(|url| url.to_string()), Err(expected.to_owned()), "{url}");
    }

    fn private(host: &str) -> String {
        format!("`{host}` is not a public address; only public ones are fetched")
    }

    #[test]
    fn fault_90_this_machine_is_refused_in_every_spelling() {
        for url in [
            "http://127.0.0.1",
            "http://127.0.0.1./",
            "http://127.0.0.1:80/",
            "http://2130706433",
            "http://0x7f.1",
            "http://0X7F000001",
            "http://0177.0.0.1",
            "http://017700000001",
            "http://127.1",
            "http://127.0.1",
            "http://①②⑦.0.0.1",
            "http://１２７。０。０。１",
            "http://127%2e0%2e0%2e1",
            "http://%31%32%37.0.0.1",
            "http:127.0.0.1",
            "http:/127.0.0.1",
            "http:\\\\127.0.0.1\\",
            "http:///127.0.0.1",
            "  http://127.0.0.1  ",
            "ht\ntp://127.0.\t0.1/\r",
            "http://evil@127.0.0.1",
            "http://example.com:80@127.0.0.1/",
            "http://example.com%40@127.0.0.1/",
            "http://example.com\\@127.0.0.1/",
            "http://127.0.0.1\\@example.com/",
            "http://127.0.0.1#@example.com/",
            "http://127.0.0.1?@example.com/",
            "HTTP://127.0.0.1/",
            "https://127.0.0.1/",
            "http://127.0.0.1:0443/",
        ] {
            let refused = parse(url, &Web::new().settings).map(|url| url.to_string());
            // A backslash ends a host as a slash does, so this one means a public name.
            match url {
                "http://example.com\\@127.0.0.1/" => {
                    assert_eq!(refused.as_deref(), Ok("http://example.com/@127.0.0.1/"))
                }
                _ => assert_eq!(refused, Err(private("127.0.0.1")), "{url:?}"),
            }
        }
        check_error("http://0.0.0.0", &private("0.0.0.0"));
        check_error("http://0", &private("0.0.0.0"));
        check_error("http://[::]", &private("::"));
        check_error("http://[::1]", &private("::1"));
        check_error("http://[0:0::0:1]", &private("::1"));
        check_error("http://[::ffff:127.0.0.1]", &private("::ffff:127.0.0.1"));
        check_error("http://[::ffff:7f00:1]", &private("::ffff:127.0.0.1"));
        check_error("http://[::127.0.0.1]", &private("::7f00:1"));
        for name in ["localhost", "localhost.", "LOCALHOST", "ⓛocalhost", "a.b.localhost", "a.localhost."] {
            let refused = parse(&format!("http://{name}/"), &Web::new().settings);
            assert!(refused.is_err_and(|error| error.contains("localhost")), "{name}");
        }
    }

    #[test]
    fn fault_90_a_host_that_is_none_is_refused() {
        for url in [
            "http://",
            "http://:80/",
            "http://[fe80::1%25eth0]/",
            "http://[fe80::1%eth0]/",
            "http://256.1.1.1/",
            "http://1.2.3.4.5/",
            "http://0x/ ",
            "http://exa mple.com/",
            "http://a\0b/",
            "http://[::1/",
            "http://example.com:99999/",
            "http://example.com:8 0/",
            "http://xn--a/",
            "example.com",
            "//example.com",
            "",
        ] {
            assert!(parse(url, &Web::new().settings).is_err(), "{url:?}");
        }
        check_error("example.com/x", "invalid URL: relative URL without a base; expected one with http:// or https://");
        check_error(
            &format!("http://example.com/{}", "a".repeat(9_000)),
            "the URL has 9019 bytes; at most 8192 are allowed",
        );
    }

    #[test]
    fn fault_93_only_http_and_https_are_schemes() {
        for scheme in ["file", "gopher", "data", "ftp", "ws", "javascript", "blob", "view-source"] {
            let expected = format!("`{scheme}` URLs are not fetched; expected http or https");
            check_error(&format!("{scheme}:///etc/passwd"), &expected);
            let from = Url::parse("https://example.com/").unwrap();
            let redirect = redirected(&from, &format!("{scheme}:///etc/passwd"), &Web::new().settings);
            assert_eq!(redirect, Err(format!("a redirect is not followed: {expected}")));
        }
    }

    #[test]
    fn fault_93_a_redirect_is_checked_like_a_url() {
        let from = Url::parse("https://me:pass@example.com/a/b?c=d#e").unwrap();
        for (location, expected) in [
            ("/x", Ok("https://example.com/x")),
            ("x?y#z", Ok("https://example.com/a/x?y")),
            ("", Ok("https://example.com/a/b?c=d")),
            ("//other.org\\x", Ok("https://other.org/x")),
            ("https://you:word@other.org/", Ok("https://other.org/")),
            ("http://other.org/", Err("a redirect is not followed: it leads from https to http, to http://other.org/")),
            (
                "https://[::1]/",
                Err("a redirect is not followed: `::1` is not a public address; only public ones are fetched"),
            ),
            (
                "\\\\0x7f.1",
                Err("a redirect is not followed: `127.0.0.1` is not a public address; only public ones are fetched"),
            ),
            ("https://x.org:6379/", Err("a redirect is not followed: port 6379 is not allowed; allowed are 80, 443")),
            ("https://[", Err("a redirect to an invalid URL: invalid IPv6 address")),
        ] {
            let actual = redirected(&from, location, &Web::new().settings).map(|url| url.to_string());
            assert_eq!(actual.as_deref().map_err(String::as_str), expected, "{location}");
        }
    }

    #[test]
    fn fault_99_other_ports_are_refused_with_the_names_of_the_allowed_ones() {
        for port in [0, 22, 25, 6379, 8080, 65535] {
            let expected = format!("port {port} is not allowed; allowed are 80, 443");
            check_error(&format!("http://example.com:{port}/"), &expected);
            check_error(&format!("https://93.184.216.34:00{port}/"), &expected);
        }
        let web = Web::new().allow_port(8080);
        assert!(parse("http://example.com:8080/", &web.settings).is_ok());
        assert_eq!(
            parse("http://example.com:22/", &web.settings),
            Err("port 22 is not allowed; allowed are 80, 443, 8080".to_owned())
        );
    }

    #[test]
    fn fault_96_a_shown_url_has_no_secret() {
        for (url, expected) in [
            ("https://me:word@example.com/a?b=c#d", "https://example.com/a?b=c"),
            ("https://example.com/?keyword=k&author=a", "https://example.com/?keyword=k&author=a"),
            ("https://example.com/?X-Amz-Signature=abc&a=b", "https://example.com/?X-Amz-Signature=redacted&a=b"),
            ("https://example.com/?access%5Ftoken=abc", "https://example.com/?access%5Ftoken=redacted"),
            (
                "https://example.com/?api-key=a&API_KEY=b&key=c",
                "https://example.com/?api-key=redacted&API_KEY=redacted&key=redacted",
            ),
        ] {
            assert_eq!(shown(&Url::parse(url).unwrap()), expected);
        }
    }
}

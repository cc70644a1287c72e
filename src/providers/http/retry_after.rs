//! The time that a server asks to wait, read from its headers. Nothing here waits.

use std::time::{Duration, SystemTime};

/// Reads `retry-after-ms` and [`Retry-After`](https://www.rfc-editor.org/rfc/rfc9110#field.retry-after).
///
/// Seconds may have a fraction. A negative or not finite number is ignored.
pub(crate) fn read<'a>(header: impl Fn(&str) -> Option<&'a str>, now: SystemTime) -> Option<Duration> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let milliseconds = header("retry-after-ms").and_then(number).map(|milliseconds| milliseconds / 1000.0);
    milliseconds.and_then(positive).or_else(|| {
        let text = header("retry-after")?;
        let date = || httpdate::parse_http_date(text).ok()?.duration_since(now).ok();
        number(text).map_or_else(date, positive)
    })
}

fn positive(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&str, &str)], expected: Option<f64>) {
        // Sun, 06 Nov 1994 08:49:37 GMT
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let header = |name: &str| headers.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        assert_eq!(read(header, now), expected.map(Duration::from_secs_f64), "{headers:?}");
    }

    #[test]
    fn fault_16_every_form_of_retry_after() {
        check(&[], None);
        check(&[("retry-after", "5")], Some(5.0));
        check(&[("retry-after", "5.5")], Some(5.5));
        check(&[("retry-after", "86400")], Some(86400.0));
        for nonsense in ["-1", "1e309", "-inf", "nan", "soon", "", "Mon, 99 Foo 2026"] {
            check(&[("retry-after", nonsense)], None);
        }
        check(&[("retry-after-ms", "1500"), ("retry-after", "9")], Some(1.5));
        check(&[("retry-after-ms", "0"), ("retry-after", "1")], Some(1.0));
        check(&[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], Some(30.0));
        check(&[("retry-after", "Tue, 29 Feb 2000 08:49:37 GMT")], Some(f64::from(1941 * 24 * 3600)));
        check(&[("retry-after", "Sun, 06 Nov 1994 08:49:07 GMT")], None);
    }
}

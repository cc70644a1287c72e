//! How long a server asks to wait, read off its headers. Nothing here waits.

use std::time::{Duration, SystemTime};

/// Reads `retry-after-ms` and [`Retry-After`](https://www.rfc-editor.org/rfc/rfc9110#field.retry-after).
///
/// Seconds may have a fraction. What is negative or not a finite number is ignored.
pub(crate) fn read<'a>(header: impl Fn(&str) -> Option<&'a str>, now: SystemTime) -> Option<Duration> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let milliseconds = header("retry-after-ms").and_then(number).map(|milliseconds| milliseconds / 1000.0);
    let exact = milliseconds.and_then(positive);
    exact.or_else(|| {
        let text = header("retry-after")?;
        number(text).map_or_else(|| date(text)?.duration_since(now).ok(), positive)
    })
}

fn positive(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|wait| !wait.is_zero())
}

/// Reads the preferred form of an [HTTP date](https://www.rfc-editor.org/rfc/rfc9110#http.date):
/// `Sun, 06 Nov 1994 08:49:37 GMT`.
fn date(text: &str) -> Option<SystemTime> {
    let mut words = text.split_once(", ")?.1.split(' ');
    let day: u64 = words.next()?.parse().ok()?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| *name == month)?;
    let year: u64 = words.next()?.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let mut clock = words.next()?.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if day > 31 || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    let is_leap = leap_days(year) > leap_days(year - 1);
    let days = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
        + DAYS_BEFORE[month]
        + u64::from(is_leap && month > 1)
        + day.checked_sub(1)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(((days * 24 + hour) * 60 + minute) * 60 + second))
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS_BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

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

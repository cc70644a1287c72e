//! `read_file`: encodings, ranges and sizes. Row 70 of the list of faults.

use std::fs::{self, File};
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use agentouto::tools::Files;

use crate::support::{Agent, Folder, child, child_value};

#[tokio::test]
async fn an_answer_says_which_lines_it_shows() {
    let folder = Folder::new();
    folder.put("three", "one\ntwo\nthree\n");
    folder.put("open", "one\ntwo");
    folder.put("empty", "");
    folder.put("blank", "\n");
    let agent = Agent::new(&folder.files());
    let read = async |path, offset, limit| agent.read_lines(path, offset, limit).await.unwrap_or_else(|error| error);
    assert_eq!(agent.read("three").await.unwrap(), "[three: lines 1 to 3 of 3]\none\ntwo\nthree\n");
    assert_eq!(read("three", 0, 2).await, "[three: lines 1 to 2 of 3; continue with offset 2]\none\ntwo\n");
    assert_eq!(read("three", 2, 2).await, "[three: lines 3 to 3 of 3]\nthree\n");
    assert_eq!(read("three", 1, 0).await, "[three: lines 2 to 2 of 3; continue with offset 2]\ntwo\n");
    assert_eq!(read("three", 3, 1).await, "`three` has 3 lines; an offset of 3 is past the end");
    assert_eq!(
        read("three", u64::MAX, u64::MAX).await,
        format!("`three` has 3 lines; an offset of {} is past the end", u64::MAX)
    );
    assert_eq!(read("open", 0, 9).await, "[open: lines 1 to 2 of 2; no newline at the end]\none\ntwo");
    assert_eq!(read("empty", 0, 9).await, "[empty: empty file]\n");
    assert_eq!(read("empty", 5, 9).await, "[empty: empty file]\n");
    assert_eq!(read("blank", 0, 9).await, "[blank: lines 1 to 1 of 1]\n\n");
}

#[tokio::test]
async fn pages_put_together_are_the_file() {
    let folder = Folder::new();
    let text: String = (0..5_000).map(|number| format!("{number} {}\n", "é".repeat(number % 97))).collect();
    folder.put("a", &text);
    let agent = Agent::new(&folder.files().max_output_bytes(10_000));
    let (mut together, mut offset) = (String::new(), 0);
    loop {
        let page = agent.read_lines("a", offset, 3_000).await.unwrap();
        assert!(page.len() < 10_200, "{}", page.len());
        let (head, lines) = page.split_once('\n').unwrap();
        together.push_str(lines);
        match head.split_once("continue with offset ") {
            Some((_, next)) => offset = next.trim_end_matches(']').parse().unwrap(),
            None => break,
        }
    }
    assert!(together == text, "{} of {} bytes", together.len(), text.len());
}

#[tokio::test]
async fn fault_70_encodings_and_line_ends_are_named() {
    let folder = Folder::new();
    let utf_16 = |text: &str| -> Vec<u8> {
        [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect()
    };
    folder.put("bom", "\u{feff}one\n");
    folder.put("utf16", utf_16("one\r\n둘 𝄞\r\n"));
    folder.put("crlf", "one\r\ntwo\r\n");
    folder.put("mixed", "one\r\ntwo\n");
    folder.put("latin", b"one\ncaf\xe9 \xe0\n");
    let agent = Agent::new(&folder.files());
    for (path, expected) in [
        ("bom", "[bom: lines 1 to 1 of 1; UTF-8 with a byte order mark]\none\n"),
        (
            "utf16",
            "[utf16: lines 1 to 2 of 2; UTF-16LE with a byte order mark; all lines end with CR LF, shown as LF]\none\n둘 𝄞\n",
        ),
        ("crlf", "[crlf: lines 1 to 2 of 2; all lines end with CR LF, shown as LF]\none\ntwo\n"),
        ("mixed", "[mixed: lines 1 to 2 of 2; some lines end with CR LF]\none\r\ntwo\n"),
        (
            "latin",
            "[latin: lines 1 to 2 of 2; not valid after 7 bytes, in line 2; what is not valid is shown as U+FFFD, and \
             the file cannot be edited]\none\ncaf\u{fffd} \u{fffd}\n",
        ),
    ] {
        assert_eq!(agent.read(path).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn fault_70_what_is_no_text_is_named() {
    let folder = Folder::new();
    folder.put("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    folder.put("data", b"ab\0c");
    folder.put("utf32", b"\xff\xfe\0\0a\0\0\0");
    fs::copy("/bin/sh", folder.path("program")).unwrap();
    let agent = Agent::new(&folder.files());
    assert_eq!(agent.read("a.png").await.unwrap_err(), "`a.png` is no text (image/png), of 16 bytes");
    assert_eq!(agent.read("data").await.unwrap_err(), "`data` is no text (it contains NUL bytes), of 4 bytes");
    assert_eq!(
        agent.read("utf32").await.unwrap_err(),
        "`utf32` is text in UTF-32, which these tools do not read, of 8 bytes"
    );
    assert!(agent.read("program").await.unwrap_err().starts_with("`program` is no text (application/x-executable)"));
}

#[tokio::test]
async fn fault_70_a_line_that_is_too_long_is_cut_and_the_answer_says_so() {
    let folder = Folder::new();
    folder.put("a", format!("short\n{}\nend\n", "x".repeat(1_000_000)));
    let agent = Agent::new(&folder.files().max_output_bytes(1_000));
    assert_eq!(agent.read("a").await.unwrap(), "[a: lines 1 to 1 of 3; continue with offset 1]\nshort\n");
    let answer = agent.read_lines("a", 1, 9).await.unwrap();
    let head =
        "[a: lines 2 to 2 of 3; line 2 has 1000001 bytes, of which the first 1000 are shown; continue with offset 2]\n";
    assert_eq!(answer, format!("{head}{}", "x".repeat(1_000)));
    assert_eq!(agent.read_lines("a", 2, 9).await.unwrap(), "[a: lines 3 to 3 of 3]\nend\n");
}

/// A file of 10 GB without content, and lines at its start and its end.
#[tokio::test]
async fn fault_70_a_file_of_ten_gigabytes_is_read_by_ranges() {
    let folder = Folder::new();
    let mut file = File::create(folder.path("big")).unwrap();
    writeln!(file, "first\nsecond").unwrap();
    file.seek(SeekFrom::Start(10_000_000_000)).unwrap();
    file.write_all(b"end").unwrap();
    let agent = Agent::new(&folder.files().timeout(std::time::Duration::from_secs(1)));
    assert_eq!(agent.read("big").await.unwrap_err(), "`big` is no text (it contains NUL bytes), of 10000000003 bytes");
    // Its first 8 KiB are text.
    let mut file = File::options().write(true).open(folder.path("big")).unwrap();
    file.write_all("line\n".repeat(2_000).as_bytes()).unwrap();
    let agent = Agent::new(&folder.files());
    let answer = agent.read_lines("big", 1, 2).await.unwrap();
    assert_eq!(answer, "[big: lines 2 to 3; the file has 10000000003 bytes; continue with offset 3]\nline\nline\n");
    assert_eq!(
        agent.edit("big", "line", "x").await.unwrap_err(),
        "`big` has 10000000003 bytes; files can be edited up to 67108864 bytes"
    );
}

/// Reads a page at the start, in the middle and at the end of a file with a million bytes in each of its lines, and
/// says how much memory the process has had.
#[tokio::test]
async fn child_that_reads_by_ranges() {
    let Some(root) = child_value() else { return };
    let agent = Agent::new(&Files::beneath(root).unwrap());
    let head = agent.read_lines("a", 0, 1).await.unwrap();
    let lines: u64 = if head.contains("the file has") { 1_000_000 } else { 1_000 };
    for offset in [0, lines / 2, lines - 3] {
        let answer = agent.read_lines("a", offset, 2).await.unwrap();
        assert!(answer.contains(&format!("\n{offset:07} ")), "{answer}");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    println!("peak={}", peak.split_whitespace().nth(1).unwrap());
}

/// The greatest memory of a process that reads ranges of a file of so many lines of 1,000 bytes, in KiB.
fn peak_of_reading(lines: u64) -> u64 {
    let folder = Folder::new();
    let mut file = BufWriter::new(File::create(folder.path("a")).unwrap());
    let rest = "x".repeat(991);
    for number in 0..lines {
        writeln!(file, "{number:07} {rest}").unwrap();
    }
    file.flush().unwrap();
    drop(file);
    peak_of_child("reading::child_that_reads_by_ranges", &folder.root())
}

fn peak_of_child(test: &str, root: &Path) -> u64 {
    let output = child(test, root.to_str().unwrap()).output().unwrap();
    let output = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let peak = output.split("peak=").nth(1).unwrap_or_else(|| panic!("{output}"));
    peak.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn fault_70_reading_a_gigabyte_by_ranges_takes_constant_memory() {
    let (megabyte, gigabyte) = (peak_of_reading(1_000), peak_of_reading(1_000_000));
    println!("peak memory: {megabyte} KiB for 1 MB, {gigabyte} KiB for 1 GB");
    assert!(gigabyte < megabyte + 2_048, "{megabyte} KiB, {gigabyte} KiB");
}

/// Reads a file of one line, and says how much memory the process has had.
#[tokio::test]
async fn child_that_reads_one_line() {
    let Some(root) = child_value() else { return };
    let answer = Agent::new(&Files::beneath(root).unwrap()).read("a").await.unwrap();
    let expected = "[a: lines 1 to 1; the file has 1000000000 bytes; line 1 has 1000000000 bytes, of which the first 65536 are shown";
    let whole = "[a: lines 1 to 1 of 1; line 1 has 1000000000 bytes, of which the first 65536 are shown; no newline at the end]";
    assert!(answer.starts_with(expected) || answer.starts_with(whole), "{}", &answer[..200]);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    println!("peak={}", peak.split_whitespace().nth(1).unwrap());
}

#[test]
#[cfg(target_os = "linux")]
fn fault_70_one_line_of_a_gigabyte_is_cut_in_constant_memory() {
    let folder = Folder::new();
    let mut file = File::create(folder.path("a")).unwrap();
    let piece = vec![b'x'; 1_000_000];
    for _ in 0..1_000 {
        file.write_all(&piece).unwrap();
    }
    let peak = peak_of_child("reading::child_that_reads_one_line", &folder.root());
    println!("peak memory: {peak} KiB");
    assert!(peak < 40_000, "{peak} KiB");
}

#[tokio::test]
async fn a_file_without_a_right_to_read_is_named() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    folder.put("a", "x");
    fs::set_permissions(folder.path("a"), fs::Permissions::from_mode(0o000)).unwrap();
    let answer = Agent::new(&folder.files()).read("a").await;
    match File::open(folder.path("a")) {
        Ok(_) => println!("not tried: this user may read every file"),
        Err(_) => assert_eq!(answer.unwrap_err(), "`a`: Permission denied (os error 13)"),
    }
}

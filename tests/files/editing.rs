//! `edit_file`. Rows 70 and 71 of the list of faults.

use crate::support::{Agent, Folder};

#[tokio::test]
async fn fault_71_a_text_that_occurs_once_is_replaced_and_the_rest_stays() {
    let folder = Folder::new();
    folder.put("a.rs", "fn a() {}\n\tfn b() {}  \nend");
    let agent = Agent::new(&folder.files());
    assert_eq!(agent.edit("a.rs", "fn b() {}", "fn c() {\n}").await.unwrap(), "Edited `a.rs`, line 2.");
    assert_eq!(folder.get("a.rs"), "fn a() {}\n\tfn c() {\n}  \nend");
    agent.edit("a.rs", "\nend", "").await.unwrap();
    agent.edit("a.rs", "fn a() {}\n\tfn c() {\n}  ", "").await.unwrap();
    assert_eq!(folder.get("a.rs"), "");
    assert_eq!(agent.edit("a.rs", "", "x").await.unwrap_err(), "`old_text` is empty");
    assert_eq!(agent.edit("a.rs", "x", "x").await.unwrap_err(), "`old_text` and `new_text` are the same");
}

#[tokio::test]
async fn fault_71_an_error_shows_the_nearest_text() {
    let folder = Folder::new();
    folder.put("a.rs", "use std;\n\nfn first() {\n    one();\n}\n\nfn second() {\n    two();\n}\n");
    folder.put("blank", "");
    let agent = Agent::new(&folder.files());
    let edit = async |path, old| agent.edit(path, old, "x").await.unwrap_err();
    assert_eq!(
        edit("a.rs", "fn second() {\n  two();\n}").await,
        "`old_text` does not occur in `a.rs`. The nearest text differs in white space only:\n7: fn second() {\n8:     two();\n9: }"
    );
    assert_eq!(
        edit("a.rs", "fn secnd() {\n    two();").await,
        "`old_text` does not occur in `a.rs`. The nearest text is:\n7: fn second() {\n8:     two();"
    );
    assert_eq!(
        edit("a.rs", "fn first() {\n    two();\n}\n\nfn third()").await,
        "`old_text` does not occur in `a.rs`. The nearest text is:\n3: fn first() {\n4:     one();\n5: }\n6: \n7: fn second() {"
    );
    assert_eq!(edit("a.rs", "0123456789").await, "`old_text` does not occur in `a.rs`. No line is like its first line");
    assert_eq!(edit("a.rs", "   \n ").await, "`old_text` does not occur in `a.rs`. It is white space alone");
    assert_eq!(edit("blank", "a").await, "`old_text` does not occur in `blank`. No line is like its first line");
    assert_eq!(edit("none", "a").await, "`none` does not exist");
}

#[tokio::test]
async fn fault_71_an_error_names_the_places_of_a_text_that_occurs_more_than_once() {
    let folder = Folder::new();
    folder.put("a", "x = 1\ny = 1\nz = 1\n");
    folder.put("overlap", "aaa");
    folder.put("many", "é\n".repeat(100));
    let agent = Agent::new(&folder.files());
    let edit = async |path, old| agent.edit(path, old, "!").await.unwrap_err();
    assert_eq!(
        edit("a", "= 1").await,
        "`old_text` occurs 3 times in `a`, in the lines 1, 2, 3. Nothing was changed. Add text before or after it, so that it occurs once"
    );
    assert!(edit("overlap", "aa").await.starts_with("`old_text` occurs 2 times in `overlap`, in the lines 1, 1."));
    let error = edit("many", "é").await;
    assert!(
        error.contains(
            "occurs more than 10 times in `many`, in the lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and further ones."
        ),
        "{error}"
    );
    assert_eq!(folder.get("a"), "x = 1\ny = 1\nz = 1\n");
}

#[tokio::test]
async fn fault_71_line_ends_stay_as_they_are() {
    let folder = Folder::new();
    folder.put("crlf", "one\r\ntwo\r\nthree\r\n");
    folder.put("open", "one\r\ntwo");
    folder.put("mixed", "one\r\ntwo\nthree\r\n");
    let agent = Agent::new(&folder.files());
    agent.edit("crlf", "one\ntwo\n", "1\n2\n2b\n").await.unwrap();
    assert_eq!(folder.get("crlf"), "1\r\n2\r\n2b\r\nthree\r\n");
    agent.edit("crlf", "2b\r\nthree", "3\r\n4").await.unwrap();
    assert_eq!(folder.get("crlf"), "1\r\n2\r\n3\r\n4\r\n");
    agent.edit("open", "two", "2\n3").await.unwrap();
    assert_eq!(folder.get("open"), "one\r\n2\r\n3");
    // Where the lines end differently, a text is taken as it is.
    assert!(agent.edit("mixed", "one\ntwo", "x").await.is_err());
    agent.edit("mixed", "one\r\ntwo\n", "1\n").await.unwrap();
    assert_eq!(folder.get("mixed"), "1\nthree\r\n");
}

#[tokio::test]
async fn fault_70_an_edit_keeps_the_encoding() {
    let folder = Folder::new();
    let utf_16 = |text: &str, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
        "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(bytes).collect()
    };
    folder.put("bom", "\u{feff}one\n");
    folder.put("le", utf_16("one\r\n둘\r\n", u16::to_le_bytes));
    folder.put("be", utf_16("one 𝄞", u16::to_be_bytes));
    let agent = Agent::new(&folder.files());
    agent.edit("bom", "one", "1").await.unwrap();
    assert_eq!(folder.get("bom"), "\u{feff}1\n");
    agent.edit("le", "one\n둘", "1\n2").await.unwrap();
    assert_eq!(std::fs::read(folder.path("le")).unwrap(), utf_16("1\r\n2\r\n", u16::to_le_bytes));
    agent.edit("be", "one", "하나").await.unwrap();
    assert_eq!(std::fs::read(folder.path("be")).unwrap(), utf_16("하나 𝄞", u16::to_be_bytes));
}

#[tokio::test]
async fn fault_70_an_edit_refuses_what_it_could_destroy() {
    let folder = Folder::new();
    folder.put("latin", b"one\ncaf\xe9\n");
    folder.put("half", b"\xff\xfea\0\0\xd8");
    folder.put("data", b"one\0");
    let agent = Agent::new(&folder.files());
    let edit = async |path| agent.edit(path, "one", "x").await.unwrap_err();
    assert_eq!(edit("latin").await, "`latin` is not valid UTF-8 after 7 bytes, in line 2; an edit could destroy it");
    assert_eq!(edit("half").await, "`half` is not valid UTF-16LE after 4 bytes, in line 1; an edit could destroy it");
    assert_eq!(edit("data").await, "`data` is no text (it contains NUL bytes); only text can be edited");
    assert_eq!(std::fs::read(folder.path("latin")).unwrap(), b"one\ncaf\xe9\n");
}

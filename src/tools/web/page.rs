//! The readable part of an HTML page, as Markdown or as text: [`Page`].
//!
//! The parser, the search for the main content and the writer of Markdown are libraries. What they are given is bounded
//! here: in its depth, in its number of nodes, in the length of a text and in the time for the parser, because each of
//! them has inputs that take the square of their length. The trees are flat, so dropping one needs no stack. Scripts
//! are never run, and nothing that a page refers to is loaded.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dom_query::{Document, NodeId};
use dom_smoothie::{Config, Readability, TextMode};
use html5ever::buffer_queue::BufferQueue;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use html5ever::tree_builder::{Tracer, TreeBuilder, TreeBuilderOpts};
use url::Url;

/// The form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExtractMode {
    Markdown,
    Text,
}

/// What a reader sees of a page.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) title: String,
    pub(super) text: String,
    /// `true` if the page was too large to be read to its end.
    pub(super) is_cut: bool,
}

impl Page {
    /// Reads the page at `url`. It blocks the thread while it computes; if `stop` becomes `true`, it ends early.
    pub(super) fn read(html: &str, url: &Url, mode: ExtractMode, stop: &AtomicBool) -> Self {
        let (document, is_cut) = parse(html, stop);
        document.select(INVISIBLE).remove();
        let config = Config {
            // Their parser is a further one, without limits.
            disable_json_ld: true,
            text_mode: match mode {
                ExtractMode::Markdown => TextMode::Markdown,
                ExtractMode::Text => TextMode::Formatted,
            },
            ..Config::default()
        };
        let is_readable = dom_smoothie::is_probably_readable(&document, None, None);
        let article = is_readable
            .then(|| Readability::with_document(document.clone(), Some(url.as_str()), Some(config)).ok()?.parse().ok())
            .flatten()
            .filter(|article| !article.text_content.trim().is_empty());
        match article {
            Some(article) => Self { title: article.title, text: article.text_content.to_string(), is_cut },
            None => Self { title: title(&document), text: whole(&document, url, mode), is_cut },
        }
    }
}

/// Elements of which a reader sees nothing.
const INVISIBLE: &str = "script, style, template, noscript, svg, iframe, object, textarea, xmp, noembed, noframes, \
    [hidden], [aria-hidden=\"true\"]";

fn title(document: &Document) -> String {
    document.select_single("title").text().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the text of all that the page shows, for a page without a main part, such as a list of links.
fn whole(document: &Document, url: &Url, mode: ExtractMode) -> String {
    let base = document.base_uri().and_then(|base| url.join(&base).ok());
    let base = base.as_ref().unwrap_or(url);
    for link in document.select("a[href], img[src]").nodes() {
        for name in ["href", "src"] {
            if let Some(absolute) = link.attr(name).and_then(|value| base.join(&value).ok()) {
                link.set_attr(name, absolute.as_str());
            }
        }
    }
    let body = document.body().unwrap_or_else(|| document.root());
    match mode {
        ExtractMode::Markdown => body.md(None).to_string(),
        ExtractMode::Text => body.formatted_text().to_string(),
    }
}

/// Parses a page within the limits. The flag is `true` if a limit was reached.
fn parse(html: &str, stop: &AtomicBool) -> (Document, bool) {
    let options = TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() };
    let builder = TreeBuilder::new(Document::default(), options);
    let bounded = Bounded { builder, has_room: Cell::new(true), is_deep: Cell::new(false), text: Cell::new(Some(0)) };
    let tokenizer = Tokenizer::new(bounded, TokenizerOpts::default());
    let (input, begun) = (BufferQueue::default(), Instant::now());
    let mut rest = html;
    while !rest.is_empty() && tokenizer.sink.has_room.get() {
        if stop.load(Ordering::Relaxed) || begun.elapsed() > MAX_PARSING {
            break;
        }
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE));
        input.push_back(StrTendril::from(piece));
        // A script ends a run of the tokenizer.
        while !matches!(tokenizer.feed(&input), html5ever::TokenizerResult::Done) {}
        rest = after;
    }
    let is_cut = !rest.is_empty() || !tokenizer.sink.has_room.get();
    tokenizer.end();
    let document = tokenizer.sink.builder.sink;
    (document, is_cut)
}

/// The bytes that the tokenizer gets at a time. Between two pieces the limits are looked at.
const PIECE: usize = 4 << 10;
/// Pages that were made to be slow need more; others need about a millisecond.
const MAX_PARSING: Duration = Duration::from_secs(5);
/// The depth from which on elements are left out; their text stays. Pages have a depth of about 30. A list or a
/// quotation is written once more for each level, so the depth multiplies the time.
const MAX_DEPTH: usize = 128;
/// The most nodes of a page. Large pages have some ten thousand.
const MAX_NODES: usize = 100_000;

/// A builder of trees that leaves out what is too much.
struct Bounded {
    builder: TreeBuilder<NodeId, Document>,
    /// `false` once there are [`MAX_NODES`] nodes.
    has_room: Cell<bool>,
    /// `true` if the depth is known to be too large, until the builder changes it.
    is_deep: Cell<bool>,
    /// The bytes of the text since the last tag or comment. `None` in an element whose content is text only.
    text: Cell<Option<usize>>,
}

impl Bounded {
    /// Returns whether there is no room for an element in the elements that are open.
    fn is_deep(&self) -> bool {
        struct Count(Cell<usize>);
        impl Tracer for Count {
            type Handle = NodeId;
            fn trace_handle(&self, _: &NodeId) {
                self.0.set(self.0.get() + 1);
            }
        }
        if !self.is_deep.get() {
            let count = Count(Cell::new(0));
            self.builder.trace_handles(&count);
            self.is_deep.set(count.0.get() > MAX_DEPTH);
        }
        self.is_deep.get()
    }

    /// Ends a text that is too long by an empty comment, so that what follows is a text of its own.
    fn split_text(&self, token: &Token, line: u64) {
        let Some(before) = self.text.get() else { return };
        if let Token::CharacterTokens(text) = token {
            self.text.set(Some(before + text.len()));
            if before > MAX_TEXT {
                self.text.set(Some(0));
                let _ = self.builder.process_token(Token::CommentToken(StrTendril::new()), line);
            }
        }
    }
}

impl TokenSink for Bounded {
    type Handle = NodeId;

    fn process_token(&self, mut token: Token, line: u64) -> TokenSinkResult<NodeId> {
        self.builder.sink.errors.borrow_mut().clear();
        if self.builder.sink.tree.len() > MAX_NODES {
            self.has_room.set(false);
            return TokenSinkResult::Continue;
        }
        self.split_text(&token, line);
        if let Token::TagToken(tag) = &token {
            let is_raw = tag.kind == TagKind::StartTag && HOLDS_TEXT.contains(&&*tag.name);
            self.text.set((!is_raw).then_some(0));
        }
        if let Token::TagToken(tag @ Tag { kind: TagKind::StartTag, .. }) = &mut token {
            if !HOLDS_NO_ELEMENT.contains(&&*tag.name) && self.is_deep() {
                return TokenSinkResult::Continue;
            }
            tag.attrs.retain(|attribute| is_harmless(&attribute.name.local, &attribute.value));
        }
        self.is_deep.set(false);
        self.builder.process_token(token, line)
    }

    fn end(&self) {
        self.builder.end();
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.builder.adjusted_current_node_present_but_not_in_html_namespace()
    }
}

/// The bytes after which a text is split. The writer of HTML needs time with the square of the length of a text that is
/// full of `&`.
const MAX_TEXT: usize = 16 << 10;
/// The most bytes of an attribute that is kept, for the same reason.
const MAX_ATTRIBUTE: usize = 8 << 10;
/// Elements that add no depth.
const HOLDS_NO_ELEMENT: [&str; 8] = ["br", "hr", "img", "input", "script", "style", "textarea", "title"];
/// Elements with text only, in which `<` begins no tag and no comment.
const HOLDS_TEXT: [&str; 8] = ["title", "textarea", "style", "script", "xmp", "iframe", "noembed", "noframes"];

/// Returns whether an attribute can be kept. A link to a script or to data in the page leads nowhere for a reader, and
/// may be megabytes long.
fn is_harmless(name: &str, value: &str) -> bool {
    match name {
        _ if value.len() > MAX_ATTRIBUTE => false,
        "srcset" => false,
        "href" | "src" => {
            let scheme = value.trim_start_matches(|c: char| c <= ' ').split(':').next().unwrap_or_default();
            let is_no_link = |other: &&str| scheme.eq_ignore_ascii_case(other);
            !["data", "javascript", "vbscript", "blob", "file"].iter().any(is_no_link) || !value.contains(':')
        }
        _ => true,
    }
}

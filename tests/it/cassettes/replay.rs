//! Plays the responses of a case to a provider: whole, and then cut in every way that a network may cut them.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentouto::ProviderErrorKind::RateLimited;
use agentouto::{Agent, ChatMessage, Delta, DeltaSink, Provider, ProviderError, Reply, Request};

use super::case::{Case, Exchange, Expect, Wire};
use super::conversation::Conversation;
use super::{compare, provider, wires};
use crate::openai::request;
use crate::server::{Answer, Player};

/// What became of a case.
#[derive(Default)]
pub(super) struct Findings {
    /// What is not as it was recorded.
    pub(super) differences: Vec<String>,
    /// What could not be compared.
    pub(super) notes: Vec<String>,
    pub(super) streams: usize,
    /// In how many places streams were cut in two, of how many there are.
    pub(super) splits: usize,
    pub(super) places: usize,
}

/// What an answer became, and what was shown of it on the way.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) result: Result<Reply, ProviderError>,
    pub(super) shown: Shown,
}

/// The pieces of a reply, put together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Shown {
    pub(super) text: String,
    pub(super) reasoning: String,
    /// Name and arguments of the tool calls.
    pub(super) calls: BTreeMap<usize, (String, String)>,
}

/// Replays all exchanges of a case, whole and in pieces.
pub(super) async fn replay(case: &Case, wire: Wire) -> Findings {
    let mut stage = Stage::start(wire).await;
    let mut replies = Vec::new();
    for (exchange, expect) in std::iter::zip(&case.exchanges, &case.expect) {
        let (request, whole) = stage.play(exchange, expect, &replies).await;
        stage.cut(&request, exchange, expect, &whole).await;
        replies.extend(whole.result.ok());
    }
    stage.findings
}

/// Replays all exchanges of a case whole. What is kept of a reply goes back in the next request.
pub(super) async fn replay_whole(case: &Case, wire: Wire, keep: impl Fn(Reply) -> Reply) -> Findings {
    let mut stage = Stage::start(wire).await;
    let mut replies = Vec::new();
    for (exchange, expect) in std::iter::zip(&case.exchanges, &case.expect) {
        let (_, whole) = stage.play(exchange, expect, &replies).await;
        replies.extend(whole.result.ok().map(&keep));
    }
    stage.findings
}

/// A provider and the server that it asks.
struct Stage {
    wire: Wire,
    player: Player,
    provider: Arc<dyn Provider>,
    /// How many exchanges were played.
    played: usize,
    findings: Findings,
}

impl Stage {
    async fn start(wire: Wire) -> Self {
        let player = Player::start().await;
        let provider = provider(wire, &player.base_url);
        Self { wire, player, provider, played: 0, findings: Findings::default() }
    }

    /// Plays the whole response, and compares what was asked and what became of the response.
    async fn play(&mut self, exchange: &Exchange, expect: &Expect, replies: &[Reply]) -> (Request, Outcome) {
        self.played += 1;
        let responses = exchange.response.beginnings();
        if responses > 1 {
            self.findings.notes.push(format!("only the last of the {responses} responses in its stream is played"));
        }
        let (request, recorded) = self.prepare(exchange, replies);
        let whole = self.ask(&request, exchange, exchange.response.answer()).await;
        if let Some(recorded) = recorded {
            self.compare_request(&recorded);
        }
        self.differ(compare::differences(self.wire, &exchange.response, expect, &whole));
        (request, whole)
    }

    fn differ(&mut self, differences: impl IntoIterator<Item = String>) {
        let nth = self.played - 1;
        self.findings.differences.extend(differences.into_iter().map(|what| format!("exchange {nth}: {what}")));
    }

    /// What to ask, and the recorded conversation if that is what is asked.
    fn prepare(&mut self, exchange: &Exchange, replies: &[Reply]) -> (Request, Option<Conversation>) {
        let hello = || request(Agent::new("a", "").model("m"), "", &[ChatMessage::user("hello")], &[]);
        if exchange.request.body.is_null() {
            return (hello(), None);
        }
        let path = exchange.request.path.as_deref().unwrap_or_default();
        match wires::read(self.wire, path, &exchange.request.body) {
            Ok(mut recorded) => {
                let (request, forgotten) = recorded.request(self.wire, replies);
                if forgotten > 0 {
                    self.findings.notes.push(format!("{forgotten} earlier replies have no part in its request"));
                }
                (request, Some(recorded))
            }
            Err(reason) => {
                self.findings.notes.push(format!("its request is not compared: {reason}"));
                (hello(), None)
            }
        }
    }

    async fn ask(&mut self, request: &Request, exchange: &Exchange, answer: Answer) -> Outcome {
        self.player.play(answer);
        let mut shown = Shown::default();
        let mut observer = |delta| shown.take(delta);
        let mut deltas = match exchange.response.is_stream() {
            true => DeltaSink::to(&mut observer),
            false => DeltaSink::none(),
        };
        let result = self.provider.reply(request, &mut deltas).await;
        // A provider that was told to slow down lets the next request wait. A new one knows nothing of that.
        if matches!(&result, Err(error) if error.kind == RateLimited) {
            self.provider = provider(self.wire, &self.player.base_url);
        }
        Outcome { result, shown }
    }

    /// Compares what was heard with what was recorded.
    fn compare_request(&mut self, recorded: &Conversation) {
        let Some(heard) = self.player.heard().pop() else {
            return self.differ(["no request was heard".to_owned()]);
        };
        let path = heard.head.split_whitespace().nth(1).unwrap_or_default();
        match wires::read(self.wire, path, &heard.body) {
            Ok(ours) => self.differ(recorded.lost_in(&ours, self.wire)),
            Err(reason) => self.differ([format!("the request: {reason}: {}", heard.body)]),
        }
    }

    /// Plays the same response in pieces. The first difference says enough.
    async fn cut(&mut self, request: &Request, exchange: &Exchange, expect: &Expect, whole: &Outcome) {
        let whole = whole.without_made_up_ids(expect);
        let answer = exchange.response.answer();
        if !exchange.response.is_stream() {
            let outcome = self.ask(request, exchange, answer.in_chunks(SMALL_CHUNK)).await;
            self.same("in small chunks", &outcome.without_made_up_ids(expect), &whole);
            return;
        }
        self.findings.streams += 1;
        self.findings.places += answer.len().saturating_sub(1);
        let outcome = self.ask(request, exchange, answer.clone().in_bytes()).await;
        let mut is_same = self.same("byte by byte", &outcome.without_made_up_ids(expect), &whole);
        let mut places = places(answer.len()).into_iter();
        while let (true, Some(place)) = (is_same, places.next()) {
            self.findings.splits += 1;
            let outcome = self.ask(request, exchange, answer.clone().split_at(place)).await;
            is_same = self.same(&format!("cut at {place}"), &outcome.without_made_up_ids(expect), &whole);
        }
    }

    fn same(&mut self, how: &str, outcome: &Outcome, whole: &Outcome) -> bool {
        self.player.heard();
        if outcome != whole {
            self.differ([format!("{how} it is {outcome:?} instead of {whole:?}")]);
        }
        outcome == whole
    }
}

impl Outcome {
    /// Where the server gives no ids the provider makes some up, which need not be the same every time.
    fn without_made_up_ids(&self, expect: &Expect) -> Self {
        let mut outcome = self.clone();
        let reply = match &mut outcome.result {
            Ok(reply) => Some(reply),
            Err(error) => error.partial.as_deref_mut(),
        };
        let calls = reply.map(|reply| &mut *reply.tool_calls).unwrap_or_default();
        for (call, expected) in std::iter::zip(calls, expect.tool_calls.as_deref().unwrap_or_default()) {
            if expected.id.is_none() {
                call.id = "".into();
            }
        }
        outcome
    }
}

impl Shown {
    fn take(&mut self, delta: Delta) {
        match delta {
            Delta::Text(piece) => self.text += &piece,
            Delta::Reasoning(piece) => self.reasoning += &piece,
            Delta::ToolCall { index, name, arguments } => {
                let (known, so_far) = self.calls.entry(index).or_default();
                *known = name.to_string();
                *so_far += &arguments;
            }
            _ => panic!("a provider makes no such piece"),
        }
    }
}

/// Where to cut a stream of so many bytes: everywhere if it is short; else within its beginning and evenly after that.
fn places(length: usize) -> Vec<usize> {
    if length <= SHORT {
        return (1..length).collect();
    }
    let evenly = |nth| BEGINNING + nth * (length - BEGINNING) / SAMPLED_SPLITS;
    (1..BEGINNING).chain((0..SAMPLED_SPLITS).map(evenly)).collect()
}

const SMALL_CHUNK: usize = 7;
/// The most bytes of a stream that is cut at every place. The fixtures are no longer.
const SHORT: usize = 3000;
/// In how many places behind its beginning a longer stream is cut. Such a stream says the same few forms of events again
/// and again, some hundred bytes each; a step that is no multiple of that meets every kind of place in them: between
/// events, between lines, within a word. All places would meet no more, and take many times as long.
const SAMPLED_SPLITS: usize = 200;
/// The bytes in which the first event begins, where nothing is known of the stream yet.
const BEGINNING: usize = 64;

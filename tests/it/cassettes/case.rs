//! One case as its file has it: what was asked, what was answered, and what an independent parser made of that.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::server::Answer;

#[derive(Deserialize)]
pub(super) struct Case {
    #[serde(default)]
    provider: Option<String>,
    pub(super) exchanges: Vec<Exchange>,
    pub(super) expect: Vec<Expect>,
}

#[derive(Deserialize)]
pub(super) struct Exchange {
    #[serde(default)]
    pub(super) request: Recorded,
    pub(super) response: Response,
}

/// What was asked; some recordings have kept nothing of it.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Recorded {
    pub(super) path: Option<String>,
    pub(super) body: Value,
}

#[derive(Deserialize)]
pub(super) struct Response {
    status: u16,
    #[serde(default)]
    pub(super) headers: Map<String, Value>,
    #[serde(default)]
    body: Value,
    #[serde(default)]
    sse_text: Option<String>,
    #[serde(default)]
    raw_text: Option<String>,
}

/// What the independent parser made of a response. Where it made nothing of a part, that is `None`.
#[derive(Deserialize)]
pub(super) struct Expect {
    pub(super) status: u16,
    pub(super) text: Option<String>,
    pub(super) reasoning: Option<String>,
    pub(super) refusal: Option<String>,
    pub(super) finish: Option<String>,
    #[serde(default)]
    pub(super) usage: Value,
    #[serde(default)]
    pub(super) error: Value,
    pub(super) tool_calls: Option<Vec<ExpectedCall>>,
    /// How many seconds the server asks to wait.
    pub(super) retry_after: Option<f64>,
}

#[derive(Deserialize)]
pub(super) struct ExpectedCall {
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) arguments: Arguments,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Arguments {
    Json(Value),
    /// No JSON, such as half an object.
    Raw(String),
}

/// The wire formats that agentouto speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// OpenAI's Chat Completions.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
    /// Google's `generateContent`.
    Gemini,
}

impl Case {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let case: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match (case.exchanges.len(), case.expect.len()) {
            (0, _) => Err("it has no exchanges".to_owned()),
            (asked, expected) if asked == expected => Ok(case),
            (asked, expected) => Err(format!("it has {asked} exchanges and {expected} expectations")),
        }
    }

    /// The wire format of its first request, or else that of its folder or provider; or why it cannot be replayed.
    pub(super) fn wire(&self, folder: &str) -> Result<Wire, String> {
        let path = self.exchanges[0].request.path.as_deref().unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default();
        if path.contains(":generateContent") || path.contains(":streamGenerateContent") {
            return Ok(Wire::Gemini);
        }
        for (end, wire) in
            [("/chat/completions", Wire::Chat), ("/responses", Wire::Responses), ("/messages", Wire::Messages)]
        {
            if path.ends_with(end) {
                return Ok(wire);
            }
        }
        if path.ends_with("/api/chat") || path.ends_with("/api/generate") {
            return Err("agentouto speaks to Ollama through its OpenAI-compatible `/v1`, not through `/api`".to_owned());
        }
        if !path.is_empty() {
            return Err(format!("no wire format is known for the path `{path}`"));
        }
        let names = [folder, self.provider.as_deref().unwrap_or_default()];
        let known = [
            ("anthropic", Wire::Messages),
            ("gemini", Wire::Gemini),
            ("google", Wire::Gemini),
            ("responses", Wire::Responses),
            ("chat", Wire::Chat),
            ("openai", Wire::Chat),
        ];
        let by_name = |name: &&str| known.into_iter().find(|(word, _)| name.contains(word)).map(|(_, wire)| wire);
        names.iter().find_map(by_name).ok_or_else(|| "no wire format is known: it has no path".to_owned())
    }
}

impl Response {
    pub(super) fn is_stream(&self) -> bool {
        self.sse_text.is_some() || self.raw_text.is_some()
    }

    /// Its body as it was on the wire, as far as that was kept.
    ///
    /// Some fixtures hold the streams of several responses, one behind the other, which no server sends; of these the
    /// parser tells the last, and so it is the last that is played.
    pub(super) fn text(&self) -> String {
        match (&self.sse_text, &self.raw_text, &self.body) {
            (Some(events), ..) => events[beginnings(events).last().unwrap_or(0)..].to_owned(),
            (None, Some(text), _) | (None, None, Value::String(text)) => text.clone(),
            (None, None, body) => body.to_string(),
        }
    }

    /// How many responses there are in its stream, where its wire has a word for a beginning.
    pub(super) fn beginnings(&self) -> usize {
        beginnings(self.sse_text.as_deref().unwrap_or_default()).count()
    }

    /// The same, to be played.
    pub(super) fn answer(&self) -> Answer {
        let header = |name: &str| self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        let usual = if self.sse_text.is_some() { "text/event-stream" } else { "application/json" };
        let content_type = header("content-type").and_then(|(_, value)| value.as_str()).unwrap_or(usual);
        let mut answer = Answer::new(self.status, content_type, self.text());
        // The body is played as text, in chunks.
        let framing = ["content-type", "content-length", "content-encoding", "transfer-encoding", "connection"];
        for (name, value) in &self.headers {
            if let (false, Value::String(value)) = (framing.contains(&&*name.to_ascii_lowercase()), value) {
                answer = answer.header(name, value);
            }
        }
        answer
    }

    /// Every string in its JSON, in order.
    pub(super) fn strings(&self) -> Vec<String> {
        let text = self.text();
        let mut strings = Vec::new();
        match serde_json::from_str(&text) {
            Ok(body) => collect(&body, &mut strings),
            Err(_) => {
                for event in text.lines().filter_map(|line| line.strip_prefix("data:")) {
                    collect(&serde_json::from_str(event).unwrap_or_default(), &mut strings);
                }
            }
        }
        strings
    }
}

/// Where in a stream a response begins.
fn beginnings(events: &str) -> impl Iterator<Item = usize> {
    let starts = std::iter::once(0).chain(events.match_indices("\n\n").map(|(at, gap)| at + gap.len()));
    starts.filter(|start| {
        let event = events[*start..].split("\n\n").next().unwrap_or_default();
        let data = event.lines().find_map(|line| line.strip_prefix("data:")).unwrap_or_default();
        let data: Value = serde_json::from_str(data).unwrap_or_default();
        matches!(data["type"].as_str(), Some("response.created" | "message_start"))
    })
}

fn collect(value: &Value, strings: &mut Vec<String>) {
    match value {
        Value::String(text) => strings.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, strings)),
        Value::Object(entries) => entries.values().for_each(|value| collect(value, strings)),
        _ => {}
    }
}

//! What a server or the way to it can do wrong: one typed error or a correct reply, and nothing that came is lost.

use std::time::Duration;

use agentouto::ProviderErrorKind::*;
use agentouto::{StopReason, Usage};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::trace::Trace;

const SECOND: Duration = Duration::from_secs(1);

/// A stream that says `text` and stops there.
fn said(text: &str) -> String {
    chunks(&[delta(json!({"content": text}))])
}

/// A complete stream of these deltas.
fn complete(deltas: &[Value]) -> Answer {
    let deltas: Vec<_> = deltas.iter().cloned().map(delta).collect();
    Answer::events(chunks(&deltas) + &chunks(&[finish("tool_calls")]) + "data: [DONE]\n\n")
}

async fn fails(answer: Answer) -> ProviderError {
    ask(answer).await.0.unwrap_err()
}

fn partial_text(error: &ProviderError) -> Option<&str> {
    error.partial.as_ref()?.text.as_deref()
}

/// Each call's id, name and arguments.
fn calls(reply: &Reply) -> Vec<(&str, &str, &str)> {
    reply.tool_calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect()
}

#[tokio::test]
async fn fault_1_letters_of_many_bytes_are_never_torn() {
    let text = "한글 漢字 🦀👩‍👩‍👧 é";
    let stream = said(text) + &chunks(&[finish("stop")]);
    let (reply, shown) = ask(Answer::events(stream).in_bytes()).await;
    assert_eq!(reply.unwrap().text.as_deref(), Some(text));
    assert_eq!(shown, [Delta::Text(text.into())]);
}

#[tokio::test]
async fn fault_2_bytes_that_are_not_utf_8_fail_and_keep_what_came() {
    let mut stream = said("fine").into_bytes();
    let offset = stream.len() + 6;
    stream.extend_from_slice(b"data: \xff\n\n");
    let error = fails(Answer::events(stream)).await;
    assert_eq!((error.kind, partial_text(&error)), (InvalidResponse, Some("fine")));
    assert!(error.message.contains(&format!("byte {offset}")), "{error}");
}

#[tokio::test]
async fn fault_3_and_4_all_line_ends_comments_and_data_of_many_lines() {
    let stream = "\u{feff}: hello\r\n\r\ndata:{\"choices\":\rdata: [{\"delta\":\ndata:{\"content\":\"a\"}}]}\r\n\r\n\
                  : alive\n\ndata: {\"choices\": [{\"finish_reason\": \"stop\"}]}\r\rdata: [DONE]\n\n";
    for answer in [Answer::events(stream), Answer::events(stream).in_bytes()] {
        assert_eq!(ask(answer).await.0.unwrap(), Reply::text("a"));
    }
}

#[tokio::test]
async fn fault_5_a_stream_that_just_ends_is_not_a_reply() {
    for answer in [Answer::events(said("half")), Answer::events(said("half") + "data: {\"choi")] {
        let error = fails(answer.clone()).await;
        assert_eq!((error.kind, partial_text(&error)), (Truncated, Some("half")));
        let error = fails(answer.then_cut()).await;
        assert_eq!((error.kind, partial_text(&error)), (Connection, Some("half")));
    }
    assert_eq!(
        fails(Answer::events("")).await,
        ProviderError::new(Truncated, "the stream ended before the reply was complete")
    );
    // Either end is enough.
    let finished = said("whole") + &chunks(&[finish("stop")]);
    for answer in [Answer::events(said("whole") + "data: [DONE]\n\n"), Answer::events(finished).then_cut()] {
        assert_eq!(ask(answer).await.0.unwrap(), Reply::text("whole"));
    }
}

#[tokio::test]
async fn fault_6_a_stream_cut_within_arguments_keeps_text_and_usage() {
    let call =
        json!({"tool_calls": [{"index": 0, "id": "1", "function": {"name": "search", "arguments": "{\"q\": \"ru"}}]});
    let used = json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}});
    let error = fails(Answer::events(said("let me see") + &chunks(&[used, delta(call)]))).await;
    let partial = error.partial.unwrap();
    assert_eq!((error.kind, partial.text.as_deref()), (Truncated, Some("let me see")));
    assert_eq!(partial.usage, Some(Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() }));
    assert_eq!(partial.tool_calls[0].arguments.as_ref(), "{\"q\": \"ru");
}

#[tokio::test]
async fn fault_7_a_reply_cut_at_the_limit_says_so() {
    let pieces = json!({"tool_calls": [
        {"index": 0, "id": "1", "function": {"name": "a", "arguments": "{}"}},
        {"index": 1, "id": "2", "function": {"name": "b", "arguments": "{\"x\":"}},
    ]});
    let reply = ask(Answer::events(chunks(&[delta(pieces), finish("length")]))).await.0.unwrap();
    assert_eq!(reply.stop_reason, StopReason::Length);
    assert_eq!(calls(&reply), [("1", "a", "{}"), ("2", "b", "{\"x\":")]);
}

#[tokio::test]
async fn fault_8_and_9_an_error_within_a_stream_keeps_what_came() {
    let overloaded = "event: error\ndata: {\"error\": {\"message\": \"busy\", \"type\": \"overloaded_error\"}}\n\n";
    let error = fails(Answer::events(overloaded)).await;
    assert_eq!(error, ProviderError::new(Overloaded, "busy"));
    let error =
        fails(Answer::events(said("half") + "event: error\ndata: {\"message\": \"busy\", \"code\": 503}\n\n")).await;
    assert_eq!((error.kind, &*error.message, partial_text(&error)), (Overloaded, "HTTP 503: busy", Some("half")));
    let plain = json!({"object": "error", "message": "no such model", "code": 404});
    assert_eq!(fails(Answer::json(200, &plain)).await.kind, InvalidRequest);
}

#[tokio::test]
async fn fault_10_a_bare_error_behind_the_events_is_read() {
    for error in [
        "{\"error\": {\"code\": 503, \"message\": \"busy\"}}",
        "{\n  \"error\": {\n    \"code\": 503,\n    \"message\": \"busy\"\n  }\n}\n",
    ] {
        for answer in [Answer::events(said("half") + error), Answer::events(said("half") + error).in_bytes()] {
            let error = fails(answer).await;
            assert_eq!(
                (error.kind, &*error.message, partial_text(&error)),
                (Overloaded, "HTTP 503: busy", Some("half"))
            );
        }
    }
}

#[tokio::test]
async fn fault_12_what_is_not_json_is_shown_by_its_beginning() {
    let long = format!("<html>{}", "é".repeat(1000));
    for (content_type, body) in [("text/html", &*long), ("text/plain", "hello"), ("application/json", "")] {
        let error = fails(Answer::new(200, content_type, body)).await;
        assert_eq!(error.kind, InvalidResponse, "{error}");
        assert!(error.message.contains(content_type), "{error}");
        let end = if body.is_empty() { "it is empty" } else { &body[..body.len().min(512)] };
        assert!(error.message.ends_with(end), "{error}");
    }
    let error = fails(Answer::events("data: hello\n\n")).await;
    assert_eq!(error.kind, InvalidResponse);
}

#[tokio::test]
async fn fault_13_an_answer_with_nothing_in_it_is_an_error() {
    let nothing = [
        json!({}),
        json!({"choices": []}),
        json!({"choices": null}),
        json!({"choices": [{"message": null, "finish_reason": "stop"}]}),
        json!({"choices": [{"message": {"content": null, "reasoning": "hm"}, "finish_reason": "length"}]}),
    ];
    for answer in nothing {
        let error = fails(Answer::json(200, &answer)).await;
        assert_eq!(error.kind, EmptyResponse, "{answer}");
        assert!(error.message.starts_with("Empty response: "), "{error}");
    }
    assert_eq!(fails(Answer::events("data: [DONE]\n\n")).await.kind, EmptyResponse);
}

#[tokio::test]
async fn fault_14_15_and_17_every_status_has_its_kind() {
    let statuses = [
        (400, InvalidRequest),
        (401, Authentication),
        (402, QuotaExceeded),
        (403, Authentication),
        (404, InvalidRequest),
        (408, Timeout),
        (409, Unavailable),
        (422, InvalidRequest),
        (429, RateLimited),
        (500, Unavailable),
        (503, Overloaded),
        (529, Overloaded),
    ];
    for (status, kind) in statuses {
        let told = ProviderError {
            status: Some(status),
            ..ProviderError::new(kind, format!("HTTP {status}: no, [redacted]"))
        };
        let message = format!("no, {KEY}");
        assert_eq!(fails(Answer::json(status, &json!({"error": {"message": message}}))).await, told);
        assert_eq!(fails(Answer::new(status, "text/plain", message)).await, told);
    }
    let quota = json!({"error": {"message": "pay", "type": "insufficient_quota", "code": "insufficient_quota"}});
    assert_eq!(fails(Answer::json(429, &quota)).await.kind, QuotaExceeded);
}

#[tokio::test]
async fn fault_16_the_wait_that_a_server_asks_for_is_told() {
    for (name, value, seconds) in [
        ("retry-after", "5", Some(5.0)),
        ("retry-after", "5.5", Some(5.5)),
        ("retry-after-ms", "1500", Some(1.5)),
        ("retry-after", "86400", Some(86400.0)),
        ("retry-after", "-1", None),
        ("retry-after", "1e309", None),
        ("retry-after", "nan", None),
    ] {
        let error = fails(Answer::json(429, &json!({})).header(name, value)).await;
        assert_eq!(error.retry_after, seconds.map(Duration::from_secs_f64), "{name}: {value}");
    }
}

#[tokio::test]
async fn fault_18_a_refused_connection_is_named() {
    let openai = OpenAi::new(KEY).base_url("http://127.0.0.1:1/v1").retries(0);
    let error = ask_at(&openai).await.0.unwrap_err();
    assert_eq!(error.kind, Connection);
    assert!(error.message.starts_with("`127.0.0.1`: ") && error.message.contains("refused"), "{error}");
    let error = ask_at(&OpenAi::new(KEY).base_url("not an address")).await.0.unwrap_err();
    assert_eq!(error.kind, InvalidRequest);
    let error = ask_at(&OpenAi::new("not\na key")).await.0.unwrap_err();
    assert_eq!(error.kind, Authentication);
}

#[tokio::test]
async fn fault_18_a_server_without_tls_is_a_failed_connection() {
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let urls = [&plain, &silent].map(|listener| format!("https://{}/v1", listener.local_addr().unwrap()));
    tokio::spawn(async move {
        let (mut socket, _) = plain.accept().await.unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        socket.shutdown().await.unwrap();
    });
    for url in urls {
        let openai = OpenAi::new(KEY).base_url(&url).retries(0).connect_timeout(SECOND / 10);
        let error = ask_at(&openai).await.0.unwrap_err();
        assert_eq!(error.kind, Connection, "{url}: {error}");
    }
}

#[tokio::test]
async fn fault_19_a_kept_connection_that_was_closed_is_replaced() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let openai = OpenAi::keyless(&format!("http://{}/v1", listener.local_addr().unwrap()));
    let server = tokio::spawn(async move {
        let whole = json!({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}).to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
        let answer = format!("{head} {}\r\n\r\n{whole}", whole.len());
        for requests in [2, 1] {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            for request in 1..=requests {
                while !bytes.ends_with(b"}]}") {
                    socket.read_buf(&mut bytes).await.unwrap();
                }
                bytes.clear();
                // The second request on the connection is read, and nothing is said any more.
                if request == 1 {
                    socket.write_all(answer.as_bytes()).await.unwrap();
                }
            }
        }
    });
    for _ in 0..2 {
        let reply = openai.reply(&hello(), &mut DeltaSink::none()).await;
        assert_eq!(reply.unwrap().text.as_deref(), Some("a"));
    }
    server.await.unwrap();
}

#[tokio::test]
async fn fault_20_a_reset_is_a_broken_connection() {
    assert_eq!(fails(Answer::events(said("half")).then_reset()).await.kind, Connection);
    assert_eq!(fails(Answer::json(200, &json!({})).then_reset()).await.kind, Connection);
}

// With time paused, a wait ends as soon as nothing else can happen.
#[tokio::test(start_paused = true)]
async fn fault_20_silence_ends() {
    let error = fails(Answer::events(said("half")).then_silence()).await;
    assert_eq!((error.kind, partial_text(&error)), (Timeout, Some("half")));
    assert_eq!(&*error.message, "nothing arrived within 60s");
    assert_eq!(fails(Answer::json(500, &json!({"error": "down"})).then_silence()).await.kind, Unavailable);
    // Who has all the time in the world may say so.
    let server = Server::start([complete(&[json!({"content": "a"})])]).await;
    let openai = OpenAi::new(KEY).base_url(&server.base_url).idle_timeout(Duration::MAX).total_timeout(Duration::MAX);
    assert_eq!(ask_at(&openai.connect_timeout(Duration::MAX)).await.0.unwrap().text.as_deref(), Some("a"));
    // Only the usage is missing.
    let finished = said("whole") + &chunks(&[finish("stop")]);
    assert_eq!(ask(Answer::events(finished).then_silence()).await.0.unwrap(), Reply::text("whole"));
}

/// A model may think for minutes: before its server answers, and after that before the first piece.
#[tokio::test(start_paused = true)]
async fn fault_20_silence_before_a_reply_begins_ends_with_the_whole_time_whether_somebody_looks_on_or_not() {
    let head = ": alive\n\n".to_owned() + &chunks(&[delta(json!({"role": "assistant", "content": ""}))]);
    let rest = said("done") + &chunks(&[finish("stop")]) + "data: [DONE]\n\n";
    let events = || Answer::events(head.clone() + &rest);
    let body = json!({"choices": [{"message": {"content": "done"}, "finish_reason": "stop"}]});
    let whole = || Answer::json(200, &body);
    let late = 500 * SECOND;
    let padded = Answer::new(200, "application/json", format!(" \n{body}"));
    for answer in [
        events().delayed(late),
        whole().delayed(late),
        events().split_at(head.len()).with_pauses(late),
        whole().split_at(1).with_pauses(59 * SECOND),
        padded.split_at(2).with_pauses(late),
    ] {
        assert_eq!(ask(answer).await.0.unwrap().text.as_deref(), Some("done"));
    }
    let never = Answer::events(head.clone()).then_silence();
    for answer in [events().delayed(700 * SECOND), whole().delayed(700 * SECOND), never] {
        let error = fails(answer).await;
        assert!(error.kind == Timeout && error.message.ends_with("within 600s"), "{error}");
    }
    let begun = events().split_at(head.len() + said("done").len()).with_pauses(61 * SECOND);
    assert_eq!(&*fails(begun).await.message, "nothing arrived within 60s");
}

#[tokio::test(start_paused = true)]
async fn fault_21_and_22_a_drip_without_end_ends() {
    for drip in [Answer::events(": alive\n\n"), Answer::new(200, "application/json", " ")] {
        assert_eq!(fails(drip.repeated(1000, 30 * SECOND)).await.kind, Timeout);
    }
    // However much arrives, there is an end in time, and it can be moved.
    let server = Server::start(vec![Answer::events(said("a")).repeated(100, 50 * SECOND); 2]).await;
    let patient = |openai: OpenAi| openai.base_url(&server.base_url).retries(0);
    let error = ask_at(&patient(OpenAi::new(KEY))).await.0.unwrap_err();
    assert_eq!((error.kind, &*error.message), (Timeout, "nothing arrived within 600s"));
    assert_eq!(partial_text(&error).map(str::len), Some(12));
    let error = ask_at(&patient(OpenAi::new(KEY).total_timeout(6000 * SECOND))).await.0.unwrap_err();
    assert_eq!(error.kind, Truncated);
}

#[tokio::test]
async fn fault_23_a_redirect_to_another_server_is_refused() {
    for status in [301, 302, 303, 307, 308] {
        let mut other = Server::start([Answer::json(200, &json!({}))]).await;
        let error = fails(Answer::new(status, "text/plain", "").header("location", &other.base_url)).await;
        assert_eq!((error.kind, error.status), (InvalidResponse, Some(status)));
        assert!(error.message.contains("a redirect to `127.0.0.1` is not followed"), "{error}");
        assert!(other.heard_nothing());
    }
    let moved = Answer::new(308, "text/plain", "").header("location", "/elsewhere");
    let mut server =
        Server::start([moved, Answer::json(200, &json!({"choices": [{"message": {"content": "here"}}]}))]).await;
    let openai = OpenAi::new(KEY).base_url(&server.base_url);
    assert_eq!(ask_at(&openai).await.0.unwrap(), Reply::text("here"));
    let (first, second) = (server.heard().await, server.heard().await);
    assert!(second.head.starts_with("POST /elsewhere ") && second.body == first.body, "{second:?}");
}

#[tokio::test]
async fn fault_24_a_compressed_answer_cannot_fill_the_memory() {
    // A deflate block in which two bits, both 0, say: 258 times the same again.
    let mut bomb = b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\xed\xc1\x31\x01\0\0\0\xc2\xa0\x2a\xeb\x9f\xd2\x10\xbe\x40".to_vec();
    bomb.resize(80_000, 0);
    let error = fails(Answer::new(200, "application/json", bomb).header("content-encoding", "gzip")).await;
    assert_eq!((error.kind, &*error.message), (InvalidResponse, "the answer is larger than 67108864 bytes"));
}

#[tokio::test]
async fn fault_25_an_event_without_end_cannot_fill_the_memory() {
    let error = fails(Answer::events(said("half") + "data: " + &"a".repeat(17 << 20))).await;
    assert_eq!((error.kind, partial_text(&error)), (InvalidResponse, Some("half")));
}

/// A piece of a tool call, which says of itself what it says.
fn piece(said: Value) -> Value {
    let function = json!({"name": said["name"], "arguments": said["arguments"]});
    json!({"tool_calls": [{"index": said["index"], "id": said["id"], "function": function}]})
}

async fn check_calls(pieces: &[Value], expected: &[(&str, &str, &str)]) {
    let pieces: Vec<_> = pieces.iter().cloned().map(piece).collect();
    assert_eq!(calls(&ask(complete(&pieces)).await.0.unwrap()), expected, "{pieces:?}");
}

#[tokio::test]
async fn fault_26_a_flood_of_tiny_events_starves_nobody() {
    let flood = "data: {}\n\n".repeat(1_000_000) + &said("a") + &chunks(&[finish("stop")]);
    let (stop, mut stopped) = tokio::sync::oneshot::channel();
    let others = tokio::spawn(async move {
        let mut turns = 0;
        while stopped.try_recv().is_err() {
            turns += 1;
            tokio::task::yield_now().await;
        }
        turns
    });
    assert_eq!(ask(Answer::events(flood)).await.0.unwrap(), Reply::text("a"));
    stop.send(()).unwrap();
    // Ten megabytes come in chunks, and between two chunks everybody has a turn.
    let turns = others.await.unwrap();
    assert!(turns > 20, "{turns} turns");
}

#[tokio::test]
async fn fault_28_calls_are_told_apart_by_index_or_by_id() {
    let one_place = [
        json!({"index": 0, "id": "1", "name": "a", "arguments": "{}"}),
        json!({"index": 0, "id": "2", "name": "b", "arguments": "{"}),
        json!({"index": 0, "id": "2", "arguments": "}"}),
    ];
    check_calls(&one_place, &[("1", "a", "{}"), ("2", "b", "{}")]).await;
    let by_turns = [
        json!({"index": 1, "id": "1", "name": "a", "arguments": "{"}),
        json!({"index": 2, "id": "2", "name": "b", "arguments": "{"}),
        json!({"index": 1, "arguments": "}"}),
        json!({"index": 2, "arguments": "}"}),
    ];
    check_calls(&by_turns, &[("1", "a", "{}"), ("2", "b", "{}")]).await;
    let neither =
        [json!({"name": "a", "arguments": "{}"}), json!({"name": "b", "arguments": "{"}), json!({"arguments": "}"})];
    check_calls(&neither, &[("", "a", "{}"), ("", "b", "{}")]).await;
    let same = json!({"id": "1", "function": {"name": "a", "arguments": "{}"}});
    let whole = json!({"choices": [{"message": {"tool_calls": [same, same]}, "finish_reason": "tool_calls"}]});
    assert_eq!(calls(&ask(Answer::json(200, &whole)).await.0.unwrap()), [("1", "a", "{}"), ("1", "a", "{}")]);
}

#[tokio::test]
async fn fault_29_another_id_with_every_piece_is_still_one_call() {
    let pieces = [
        json!({"index": 0, "id": "1", "name": "a", "arguments": "{"}),
        json!({"index": 0, "id": "2", "arguments": "\"x\":"}),
        json!({"index": 0, "id": "3", "name": "", "arguments": "1}"}),
    ];
    check_calls(&pieces, &[("1", "a", "{\"x\":1}")]).await;
}

#[tokio::test]
async fn fault_30_a_name_comes_in_pieces_or_again_or_not_at_all() {
    let in_pieces = [
        json!({"index": 0, "id": "1", "name": "get_", "arguments": ""}),
        json!({"index": 0, "name": "weather", "arguments": ""}),
        json!({"index": 0, "arguments": "{}"}),
    ];
    check_calls(&in_pieces, &[("1", "get_weather", "{}")]).await;
    let again = [
        json!({"index": 0, "id": "1", "name": "a", "arguments": ""}),
        json!({"index": 0, "id": "1", "name": "a", "arguments": "{"}),
        json!({"index": 0, "id": "1", "name": "a", "arguments": "}"}),
    ];
    check_calls(&again, &[("1", "a", "{}")]).await;
    check_calls(&[json!({"index": 0, "id": "", "name": "", "arguments": "{}"})], &[("", "", "{}")]).await;
    let bare = json!({"tool_calls": [{"index": 0, "id": null}]});
    assert_eq!(calls(&ask(complete(&[bare])).await.0.unwrap()), [("", "", "")]);
}

#[tokio::test]
async fn fault_31_arguments_come_in_many_shapes() {
    for (arguments, expected) in [
        (Value::Null, ""),
        (json!(""), ""),
        (json!({"a": 1}), "{\"a\":1}"),
        (json!("\"{}\""), "\"{}\""),
        (json!("{} and more"), "{} and more"),
    ] {
        let call = json!({"tool_calls": [{"index": 0, "id": "1", "function": {"name": "a", "arguments": arguments}}]});
        assert_eq!(calls(&ask(complete(std::slice::from_ref(&call))).await.0.unwrap()), [("1", "a", expected)]);
        let whole = json!({"choices": [{"message": call}]});
        let reply = ask(Answer::json(200, &whole)).await.0.unwrap();
        assert_eq!(calls(&reply), [("1", "a", expected)]);
        assert_eq!(reply.stop_reason, StopReason::ToolCalls);
    }
}

#[tokio::test]
async fn fault_38_what_is_unknown_is_passed_over_and_named_once() {
    let trace = Trace::default();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer({
        let trace = trace.clone();
        move || trace.clone()
    });
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let stream = "event: ping\ndata: {\"type\": \"ping\"}\n\n".repeat(3)
        + "id: 7\nfoo: bar\n\n"
        + &chunks(&[
            json!({"choices": [{"index": 1, "delta": {"content": "another choice"}}]}),
            json!({"new": [1], "choices": [{"newer": {}, "delta": {"newest": 1, "content": {"a": 1}}}]}),
            json!({"choices": [{"delta": {"content": "a"}, "message": {"content": "so far: a"}, "finish_reason": "tired"}]}),
        ]);
    let reply = ask(Answer::events(stream)).await.0.unwrap();
    assert_eq!((reply.text.as_deref(), reply.stop_reason.to_string()), (Some("a"), "tired".to_owned()));
    let said = trace.text();
    assert_eq!((said.lines().count(), said.contains("event=\"ping\"")), (1, true), "{said}");
}

#[tokio::test]
async fn fault_39_usage_is_what_the_server_said_last() {
    let usage = |input_tokens, output_tokens| Some(Usage { input_tokens, output_tokens, ..Usage::default() });
    let used = |prompt: Value, completion: Value| json!({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}});
    for (told, expected) in [
        (vec![], None),
        (vec![json!({"usage": null})], None),
        (vec![json!({"usage": {}})], None),
        (vec![used(json!(-1), json!("many"))], None),
        (vec![used(json!(3), Value::Null)], usage(3, 0)),
        (vec![used(json!(9), json!(9)), used(json!(3), json!(2.0))], usage(3, 2)),
        (vec![used(json!(u64::MAX), json!(1e300))], usage(u64::MAX, u64::MAX)),
        (
            vec![json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5}}})],
            usage(9, 1).map(|usage| Usage { cached_tokens: 4, cache_write_tokens: 5, ..usage }),
        ),
        (
            vec![json!({"choices": [{"index": 0, "delta": {}, "usage": {"prompt_tokens": 9, "completion_tokens": 1,
                "cached_tokens": 4}}]})],
            usage(9, 1).map(|usage| Usage { cached_tokens: 4, ..usage }),
        ),
        (
            vec![json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 0, "cache_creation_input_tokens": 5}}})],
            usage(9, 1).map(|usage| Usage { cache_write_tokens: 5, ..usage }),
        ),
        (vec![used(json!(3), json!(2)), json!({"choices": [{"delta": {}, "usage": 7}]})], usage(3, 2)),
    ] {
        let stream = said("a") + &chunks(&[finish("stop")]) + &chunks(&told);
        let server = Server::start([Answer::events(stream)]).await;
        let mut deltas = DeltaSink::none();
        let openai = OpenAi::new(KEY).base_url(&server.base_url).streaming(Streaming::Always);
        let reply = openai.reply(&hello(), &mut deltas).await.unwrap();
        assert_eq!((reply.usage, deltas.known_usage()), (expected, expected), "{told:?}");
    }
}

#[tokio::test]
async fn a_refusal_is_the_text_where_there_is_no_other() {
    let whole = json!({"choices": [{"message": {"content": null, "refusal": "no"}, "finish_reason": "stop"}]});
    let (reply, shown) = ask(Answer::json(200, &whole)).await;
    assert_eq!(
        (reply.unwrap(), shown),
        (Reply { refusal: Some("no".into()), ..Reply::default() }, vec![Delta::Text("no".into())])
    );
}

#[tokio::test]
async fn a_dropped_reply_drops_the_connection() {
    let mut server = Server::start([Answer::events(said("half")).then_silence()]).await;
    let openai = OpenAi::new(KEY).base_url(&server.base_url);
    let (show, mut shown) = tokio::sync::mpsc::unbounded_channel();
    let mut observer = move |delta| show.send(delta).unwrap();
    let request = hello();
    let mut deltas = DeltaSink::to(&mut observer);
    tokio::select! {
        result = openai.reply(&request, &mut deltas) => panic!("{result:?}"),
        _ = shown.recv() => {}
    }
    server.left_alone().await;
}

#[tokio::test]
async fn the_key_is_in_no_error_no_debug_and_no_trace() {
    let trace = Trace::default();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer({
        let trace = trace.clone();
        move || trace.clone()
    });
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let mut seen = String::new();
    let echo = format!("{}{KEY}", "x".repeat(500));
    for answer in [
        Answer::json(401, &json!({"error": {"message": format!("bad key {KEY}")}})),
        Answer::json(401, &json!({"error": {"message": "x".repeat(4090) + KEY}})),
        Answer::new(500, "text/html", echo.clone()),
        Answer::new(200, "text/html", echo.clone()),
        Answer::new(200, KEY, "{"),
        Answer::events(format!("data: {echo}\n\n")),
        Answer::events(format!("event: error\ndata: {{\"key\": \"{KEY}\"}}\n\n")),
        Answer::events(said("a")),
        Answer::json(200, &json!({"choices": 7, "key": KEY})),
    ] {
        let error = fails(answer).await;
        seen += &format!("{error} {error:?} {}\n", serde_json::to_string(&error).unwrap());
    }
    for url in [&format!("http://{KEY}@127.0.0.1:1/v1"), &format!("http://127.0.0.1:1/{KEY}"), &format!("not {KEY}")] {
        let error = ask_at(&OpenAi::new(KEY).base_url(url)).await.0.unwrap_err();
        seen += &format!("{error} {error:?}\n");
    }
    seen += &format!("{:?}", OpenAi::new(KEY));
    seen += &trace.text();
    assert!(!seen.contains(&KEY[..14]), "{seen}");
}

//! Answers of a type that the caller expects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentouto::providers::scripted::Scripted;
use agentouto::{Agent, CallError, Forward, Incoming, Reply, Request, Runtime};
use ractor::{ActorProcessingErr, ActorRef};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::team::{With, path, team};

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
struct Verdict {
    score: u8,
    reasons: Vec<Reason>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
struct Reason {
    text: String,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Colour {
    Red,
    Green,
}

fn verdict() -> Value {
    json!({"score": 7, "reasons": [{"text": "clear"}]})
}

fn expected() -> Verdict {
    Verdict { score: 7, reasons: vec![Reason { text: "clear".to_owned() }] }
}

fn judge(replies: impl IntoIterator<Item = Reply>) -> Runtime {
    team(Scripted::new().replies("judge", replies), ["judge"]).build().unwrap()
}

fn finish(arguments: Value) -> Reply {
    Reply::tool("finish", arguments)
}

#[tokio::test]
async fn the_answer_is_the_arguments_of_finish_or_the_json_of_a_text() {
    for reply in [finish(verdict()), Reply::text(verdict().to_string())] {
        let report = judge([reply]).user("u").forward("judge", "?").typed::<Verdict>().await.unwrap();
        assert_eq!(report.output, expected());
        assert_eq!(path(&report.log)[1], format!("u < judge: {}", verdict()));
    }
}

#[tokio::test]
async fn a_type_that_is_no_object_is_the_message_of_finish() {
    let runtime = judge([finish(json!({"message": "green"})), finish(json!({"message": 41.5})), Reply::text("red")]);
    let ask = || runtime.user("u").forward("judge", "?");
    assert_eq!(ask().typed::<Colour>().await.unwrap().output, Colour::Green);
    assert_eq!(ask().typed::<f64>().await.unwrap().output, 41.5);
    assert_eq!(ask().typed::<Colour>().await.unwrap().output, Colour::Red);
    let runtime = judge([finish(json!({"message": "42"})), Reply::text("\"as it is\"")]);
    let ask = || runtime.user("u").forward("judge", "?");
    assert_eq!(ask().typed::<String>().await.unwrap().output, "42");
    assert_eq!(ask().typed::<String>().await.unwrap().output, "\"as it is\"");
}

#[tokio::test]
async fn a_model_that_is_wrong_twice_is_told_where_and_then_right() {
    let model = Scripted::computed(|request: &Request| {
        let offered = request.tools.last().unwrap();
        assert_eq!((&*offered.name, &offered.parameters["required"]), ("finish", &json!(["score", "reasons"])));
        let said = serde_json::to_string(request.context.messages().next_back().unwrap()).unwrap();
        match request.context.turns() {
            0 => finish(json!({"score": 7, "reasons": [{"text": 1}]})).and_tool("other", json!({})),
            1 => {
                assert!(said.contains("not carried out, because the same reply called finish"), "{said}");
                let outputs: Vec<_> = request.context.messages().map(|m| serde_json::to_string(m).unwrap()).collect();
                let told = "`reasons[0].text`: invalid type: integer `1`, expected a string";
                assert!(outputs[2].contains(told), "{outputs:?}");
                Reply::text("seven out of ten")
            }
            _ => {
                assert!(said.contains("expected JSON, found `seven out of ten`"), "{said}");
                finish(verdict())
            }
        }
    });
    let runtime = team(model, ["judge"]).build().unwrap();
    assert_eq!(runtime.user("u").forward("judge", "?").typed::<Verdict>().await.unwrap().output, expected());
}

#[tokio::test]
async fn a_model_that_is_never_right_is_told_three_times_and_then_fails() {
    for wrong in [finish(json!({"score": 700, "reasons": []})), Reply::text("no idea"), finish(json!({}))] {
        let runtime = judge(vec![wrong; 10]);
        let failed = runtime.user("u").forward("judge", "?").typed::<Verdict>().await.unwrap_err();
        assert!(matches!(&failed.error, CallError::Misfit { name, .. } if &**name == "judge"), "{failed}");
    }
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let model = Scripted::computed(move |_: &Request| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Reply::text("no idea")
    });
    let runtime = team(model, ["judge"]).build().unwrap();
    runtime.user("u").forward("judge", "?").typed::<Verdict>().await.unwrap_err();
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 4, "the first answer, and three corrections");
}

#[tokio::test]
async fn the_model_reads_what_the_validator_says() {
    let model = Scripted::computed(|request: &Request| match request.context.turns() {
        0 => finish(json!({"score": 9, "reasons": []})),
        1 => {
            let said = serde_json::to_string(request.context.messages().next_back().unwrap()).unwrap();
            assert!(said.contains("a verdict needs a reason"), "{said}");
            finish(json!({"score": 99, "reasons": [{"text": "x"}]}))
        }
        _ => finish(verdict()),
    });
    let runtime = team(model, ["judge"]).build().unwrap();
    let call = runtime.user("u").forward("judge", "?").typed::<Verdict>();
    let reasons = |verdict: &Verdict| match verdict.reasons[..] {
        [] => Err("a verdict needs a reason"),
        _ => Ok(()),
    };
    let panics = |verdict: &Verdict| {
        assert!(verdict.score < 50, "out of range");
        Ok::<_, String>(())
    };
    assert_eq!(call.validated(reasons).validated(panics).await.unwrap().output, expected());
}

#[tokio::test]
async fn agents_answer_each_other_with_types_and_so_do_tools_that_ask() {
    let model = Scripted::new()
        .replies("lead", [Reply::call_agent("judge", "?"), Reply::tool("ask", json!({})), Reply::text("done")])
        .replies("judge", [finish(json!({})), finish(verdict()), finish(json!({"message": 3}))]);
    let ask = With("ask", |context: agentouto::ToolContext| async move {
        let answer = context.caller.forward("judge", "how many?").typed::<u32>().await?;
        Ok(format!("{} reasons", answer.output).into())
    });
    let judge = Agent::new("judge", "Judges.").answers::<Verdict>();
    let runtime = team(model, ["lead"]).agent(judge).tool(ask).build().unwrap();
    let report = runtime.run("lead", "go").await.unwrap();
    assert_eq!(path(&report.log)[2], format!("lead < judge: {}", verdict()));
    assert_eq!(path(&report.log)[4], "lead < judge: 3", "what its caller expects goes before what it always gives");
}

#[tokio::test]
async fn what_a_person_answers_is_checked_once() {
    let answer = |text: &'static str| move |_: Arc<Forward>| async move { Ok::<_, CallError>(text) };
    let runtime = Runtime::builder()
        .user("right", "", answer(r#" {"score":7,"reasons":[{"text":"clear"}]} "#))
        .user("wrong", "", answer(r#"{"score":"seven","reasons":[]}"#))
        .user("shy", "", answer("green"))
        .build()
        .unwrap();
    let user = runtime.user("u");
    assert_eq!(user.forward("right", "?").typed::<Verdict>().await.unwrap().output, expected());
    assert_eq!(user.forward("shy", "?").typed::<Colour>().await.unwrap().output, Colour::Green);
    let failed = user.forward("wrong", "?").typed::<Verdict>().await.unwrap_err();
    let text = "the answer of `wrong` does not fit: `score`: invalid type: string \"seven\", expected u8";
    assert_eq!(failed.to_string(), text);
    let failed = user.caller().forward("shy", "?").typed::<Verdict>().await.unwrap_err();
    assert!(failed.to_string().contains("expected JSON, found `green`"), "{failed}");
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Tree {
    name: String,
    children: Vec<Tree>,
}

#[tokio::test]
async fn a_recursive_type_is_offered_with_references_that_resolve() {
    let model = Scripted::computed(|request: &Request| {
        let parameters = &request.tools.last().unwrap().parameters;
        let validator = jsonschema::validator_for(parameters).unwrap();
        let tree = json!({"name": "root", "children": [{"name": "leaf", "children": []}]});
        let arguments = if parameters["properties"]["message"].is_object() { json!({"message": [tree]}) } else { tree };
        assert!(validator.is_valid(&arguments), "{parameters}");
        let broken = json!({"name": "root", "children": [{"name": 1, "children": []}], "message": [{"name": 1}]});
        assert!(!validator.is_valid(&broken), "{parameters}");
        finish(arguments)
    });
    let runtime = team(model, ["a"]).build().unwrap();
    let tree = runtime.user("u").forward("a", "?").typed::<Tree>().await.unwrap().output;
    assert_eq!((&*tree.name, tree.children[0].children.len()), ("root", 0));
    let trees = runtime.user("u").forward("a", "?").typed::<Vec<Tree>>().await.unwrap().output;
    assert_eq!(trees[0].children[0].name, "leaf");
}

#[cfg(all(feature = "http", feature = "prompt_tools"))]
mod formats {
    use agentouto::Provider;
    use agentouto::providers::anthropic::Anthropic;
    use agentouto::providers::google::Google;
    use agentouto::providers::openai::OpenAi;
    use agentouto::providers::openai_responses::OpenAiResponses;
    use agentouto::providers::prompt_tools::PromptTools;

    use super::*;
    use crate::server::{Answer, Server};

    /// A model that is wrong twice: `reply` writes its arguments of `finish` in a wire format.
    async fn check<P: Provider>(provider: impl Fn(&str) -> P, reply: impl Fn(&Value) -> Value) {
        let arguments = [json!({"score": 7}), json!({"score": -1, "reasons": []}), verdict()];
        let mut server = Server::start(arguments.map(|arguments| Answer::json(200, &reply(&arguments)))).await;
        let runtime = team(provider(&server.base_url), ["judge"]).build().unwrap();
        let report = runtime.user("u").forward("judge", "?").typed::<Verdict>().await.unwrap();
        assert_eq!(report.output, expected());
        let [first, second, third] =
            [server.heard().await, server.heard().await, server.heard().await].map(|heard| heard.body.to_string());
        assert!(first.contains("reasons") && first.contains("score"), "the schema is offered: {first}");
        assert!(second.contains("missing field `reasons`"), "{second}");
        assert!(third.contains("invalid value: integer `-1`, expected u8"), "{third}");
    }

    fn chat(content: &Value) -> Value {
        json!({"choices": [{"message": content, "finish_reason": "stop"}]})
    }

    #[tokio::test]
    async fn chat_completions() {
        check(
            |url| OpenAi::keyless(url).retries(0),
            |arguments| {
                let function = json!({"name": "finish", "arguments": arguments.to_string()});
                chat(&json!({"tool_calls": [{"id": "c", "type": "function", "function": function}]}))
            },
        )
        .await;
    }

    #[tokio::test]
    async fn responses() {
        check(
            |url| OpenAiResponses::keyless(url).retries(0),
            |arguments| {
                json!({"status": "completed", "output": [
                    {"type": "function_call", "id": "f", "call_id": "c", "name": "finish", "arguments": arguments.to_string()},
                ]})
            },
        )
        .await;
    }

    #[tokio::test]
    async fn messages() {
        check(
            |url| Anthropic::keyless(url).retries(0),
            |arguments| {
                let call = json!({"type": "tool_use", "id": "c", "name": "finish", "input": arguments});
                json!({"content": [call], "stop_reason": "tool_use"})
            },
        )
        .await;
    }

    #[tokio::test]
    async fn generated_content() {
        check(
            |url| Google::keyless(url).retries(0),
            |arguments| {
                let call = json!({"functionCall": {"name": "finish", "args": arguments}});
                json!({"candidates": [{"content": {"parts": [call]}, "finishReason": "STOP"}]})
            },
        )
        .await;
    }

    #[tokio::test]
    async fn prompt_tools() {
        check(
            |url| PromptTools::around(OpenAi::keyless(url).retries(0)),
            |arguments| {
                let written =
                    format!("<tool_call>\n<name>finish</name>\n<arguments>{arguments}</arguments>\n</tool_call>");
                chat(&json!({"content": written}))
            },
        )
        .await;
    }
}

#[tokio::test]
async fn a_text_is_validated_without_a_type() {
    let runtime = judge([Reply::text("no"), Reply::finish("yes, because")]);
    let because = |answer: &Arc<str>| if answer.contains("because") { Ok(()) } else { Err("say why") };
    let report = runtime.user("u").forward("judge", "?").validated(because).await.unwrap();
    assert_eq!(&*report.output, "yes, because");
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
enum Sum {
    Number(i64),
    Add(Vec<Sum>),
}

#[tokio::test]
async fn a_recursive_type_that_is_no_object_refers_to_itself_and_not_to_what_is_around_it() {
    let sum = || json!({"Add": [{"Number": 1}, {"Add": [{"Number": 2}]}]});
    let model = Scripted::computed(move |request: &Request| {
        let parameters = &request.tools.last().unwrap().parameters;
        let validator = jsonschema::validator_for(parameters).unwrap();
        assert!(validator.is_valid(&json!({"message": sum()})), "{parameters}");
        assert!(!validator.is_valid(&json!({"message": {"Add": [{"message": {"Number": 1}}]}})), "{parameters}");
        finish(json!({"message": sum()}))
    });
    let runtime = team(model, ["a"]).build().unwrap();
    let answer = runtime.user("u").forward("a", "?").typed::<Sum>().await.unwrap().output;
    assert_eq!(answer, Sum::Add(vec![Sum::Number(1), Sum::Add(vec![Sum::Number(2)])]));
}

/// A type whose `Deserialize` panics.
#[derive(Debug, JsonSchema)]
#[schemars(transparent)]
struct Bomb(#[expect(dead_code, reason = "it never exists")] u8);

impl<'de> Deserialize<'de> for Bomb {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("a panic of the caller's type")
    }
}

#[tokio::test]
async fn a_panic_of_a_callers_type_ends_no_actor_that_answers_it() {
    struct Clerk;
    struct Ask(Incoming);
    impl From<Incoming> for Ask {
        fn from(incoming: Incoming) -> Self {
            Self(incoming)
        }
    }
    impl ractor::Actor for Clerk {
        type Msg = Ask;
        type State = ();
        type Arguments = ();
        async fn pre_start(&self, _: ActorRef<Ask>, (): ()) -> Result<(), ActorProcessingErr> {
            Ok(())
        }
        async fn handle(&self, _: ActorRef<Ask>, ask: Ask, (): &mut ()) -> Result<(), ActorProcessingErr> {
            ask.0.reply.send(Ok::<_, CallError>("42"));
            Ok(())
        }
    }
    let (clerk, _) = ractor::Actor::spawn(None, Clerk, ()).await.unwrap();
    let model = Scripted::computed(|_: &Request| Reply::text("42"));
    let runtime = team(model, ["judge"]).actor("clerk", "", clerk.clone()).build().unwrap();
    for callee in ["clerk", "judge"] {
        let failed = runtime.user("u").forward(callee, "?").typed::<Bomb>().await.unwrap_err();
        let told = format!("the answer of `{callee}` does not fit: its type panicked: a panic of the caller's type");
        assert_eq!(failed.to_string(), told);
    }
    assert_eq!(runtime.user("u").forward("clerk", "?").typed::<u8>().await.unwrap().output, 42);
    clerk.stop(None);
}

/// A type that can be made once.
#[derive(Debug, JsonSchema)]
#[schemars(transparent)]
struct Once(#[expect(dead_code, reason = "only its making matters")] u8);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: serde::Deserializer<'de>>(written: D) -> Result<Self, D::Error> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        assert_eq!(MADE.fetch_add(1, Ordering::Relaxed), 0, "made twice");
        u8::deserialize(written).map(Self)
    }
}

#[tokio::test]
async fn a_type_that_panics_only_for_its_output_is_an_error_of_the_call() {
    let model = Scripted::computed(|_: &Request| Reply::text("42"));
    let runtime = team(model, ["a"]).build().unwrap();
    let failed = runtime.user("u").forward("a", "?").typed::<Once>().await.unwrap_err();
    assert!(failed.to_string().contains("its type panicked"), "{failed}");
}

/// A type that is not the parameter `message`, but has its name.
#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
#[schemars(rename = "message")]
struct Note {
    text: String,
    replies: Vec<Note>,
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
enum Thread {
    Note(Note),
    Many(Vec<Thread>),
}

#[tokio::test]
async fn a_recursive_type_with_a_part_of_the_name_of_the_parameter_keeps_both_schemas() {
    let thread = || json!({"Many": [{"Note": {"text": "x", "replies": [{"text": "y", "replies": []}]}}]});
    let model = Scripted::computed(move |request: &Request| {
        let parameters = &request.tools.last().unwrap().parameters;
        let validator = jsonschema::validator_for(parameters).unwrap();
        assert!(validator.is_valid(&json!({"message": thread()})), "{parameters}");
        assert!(!validator.is_valid(&json!({"message": {"Many": [{"Note": {"Many": []}}]}})), "{parameters}");
        finish(json!({"message": thread()}))
    });
    let runtime = team(model, ["a"]).build().unwrap();
    let answer = runtime.user("u").forward("a", "?").typed::<Thread>().await.unwrap().output;
    let note = |text: &str, replies| Note { text: text.to_owned(), replies };
    assert_eq!(answer, Thread::Many(vec![Thread::Note(note("x", vec![note("y", vec![])]))]));
}

#[tokio::test]
async fn the_error_of_a_huge_answer_is_short() {
    let runtime = judge(vec![finish(json!({"score": "é".repeat(100_000), "reasons": []})); 4]);
    let failed = runtime.user("u").forward("judge", "?").typed::<Verdict>().await.unwrap_err().to_string();
    assert!(failed.len() < 2_000 && failed.contains("`score`") && failed.ends_with("expected u8"), "{failed}");
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
struct Decided {
    #[serde(flatten)]
    decision: Decision,
    why: String,
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(tag = "kind")]
enum Decision {
    Accept { price: u8 },
    Refuse,
}

#[tokio::test]
async fn a_type_that_flattens_an_enum_is_the_message_of_finish_because_no_vendor_takes_a_choice_at_the_root() {
    let decided = json!({"kind": "Accept", "price": 7, "why": "cheap"});
    let answers = [finish(json!({"message": decided})), Reply::text(decided.to_string())];
    for answer in answers {
        let model = Scripted::computed(move |request: &Request| {
            let parameters = &request.tools.last().unwrap().parameters;
            assert_eq!((parameters.get("oneOf"), &parameters["required"]), (None, &json!(["message"])));
            answer.clone()
        });
        let runtime = team(model, ["a"]).build().unwrap();
        let answer = runtime.user("u").forward("a", "?").typed::<Decided>().await.unwrap().output;
        assert_eq!(answer, Decided { decision: Decision::Accept { price: 7 }, why: "cheap".to_owned() });
    }
}

//! What a host sees: agents as tools, answers as results, steps as progress.

use agentouto::{Agent, mcp};
use rmcp::ServiceError;
use serde_json::json;

use crate::host::{ask, call, host};
use crate::team::{CROWD, team};

#[tokio::test]
async fn every_agent_is_a_tool_and_a_person_only_if_they_are_chosen() {
    let (runtime, _keeper) = team();
    let (session, _serving) = host().0.over_pipe(mcp::serve(&runtime).name("the-team")).await;
    assert_eq!(session.peer_info().unwrap().server_info.as_ref().unwrap().name, "the-team");
    let tools = session.list_all_tools().await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
    let korean = "agent-457563c0";
    assert_eq!(names, ["researcher", "writer", "waiter", "broken", "attendee", "sleeper", korean]);
    assert_eq!(tools[0].description.as_deref(), Some("Finds facts."));
    assert_eq!(tools[6].description.as_deref(), Some("The agent `작가`."), "instructions are for its model");
    assert!(!format!("{tools:?}").contains("instructions."), "{tools:?}");
    assert_eq!(tools[6].title.as_deref(), Some("작가"));
    assert_eq!(tools[0].input_schema["required"], json!(["message"]));
    assert_eq!(tools[0].input_schema["properties"]["message"]["type"], "string");
    assert_eq!(ask(&session, korean).await, "안녕하세요");

    let chosen = mcp::serve(&runtime).agents(["person", "researcher"]);
    let (session, _serving) = host().0.over_pipe(chosen).await;
    let tools = session.list_all_tools().await.unwrap();
    assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["researcher", "person"]);
    assert_eq!(ask(&session, "person").await, "yes");
    assert!(call(&session, "writer", json!({ "message": "?" })).await.is_err(), "the others are not to be had");
}

#[tokio::test]
async fn an_answer_is_content_and_a_failure_is_an_error_that_the_model_reads() {
    let (runtime, _keeper) = team();
    let server = mcp::serve(&runtime).agents(["writer", "painter", "broken"]);
    let (session, _serving) = host().0.over_pipe(server).await;
    let picture = call(&session, "painter", json!({ "message": "A cat." })).await.unwrap();
    assert_eq!(picture.content[0].as_text().unwrap().text, "A picture:");
    assert_eq!(picture.content[1].as_image().unwrap().mime_type, "image/png");

    let failed = call(&session, "broken", json!({ "message": "?" })).await.unwrap();
    assert_eq!(failed.is_error, Some(true));
    assert_eq!(failed.content[0].as_text().unwrap().text, "[script] the model is out of order");

    for (arguments, expected) in [
        (json!({}), "missing required argument `message`; expected {\"message\": \"what the agent is asked\"}"),
        (
            json!({ "message": 7 }),
            "`message` is not a string but 7; expected {\"message\": \"what the agent is asked\"}",
        ),
    ] {
        let refused = call(&session, "writer", arguments).await.unwrap();
        assert_eq!(refused.is_error, Some(true));
        assert_eq!(refused.content[0].as_text().unwrap().text, expected);
    }
    let Err(ServiceError::McpError(error)) = call(&session, "wirter", json!({ "message": "?" })).await else {
        panic!("nobody has that name");
    };
    assert_eq!(error.code.0, -32602);
    assert_eq!(error.message, "unknown tool `wirter`; available tools: writer, broken, painter");
}

#[tokio::test]
async fn an_agent_may_be_called_without_a_message_where_there_is_a_default() {
    let (runtime, _keeper) = team();
    let (session, _serving) = host().0.over_pipe(mcp::serve(&runtime).default_message("Begin.")).await;
    assert_eq!(session.list_all_tools().await.unwrap()[0].input_schema["required"], json!([]));
    let answer = call(&session, "writer", json!({})).await.unwrap();
    assert_eq!(answer.content[0].as_text().unwrap().text, "A draft.");
}

#[tokio::test]
async fn every_step_of_the_whole_tree_is_told_in_order() {
    let (runtime, _keeper) = team();
    let (host, _) = host();
    let (session, _serving) = host.clone().over_pipe(mcp::serve(&runtime).user("claude")).await;
    assert_eq!(ask(&session, "researcher").await, "A report.");
    // The SDK's client hands progress on in tasks of their own.
    let mut steps = host.steps();
    while steps.len() < 10 {
        tokio::task::yield_now().await;
        steps = host.steps();
    }
    steps.sort_by_key(|step| step.split(' ').next().unwrap().parse::<u32>().unwrap());
    assert_eq!(
        steps,
        [
            "1 claude calls researcher",
            "2 researcher asks its model, turn 1",
            "3 researcher has its model's reply",
            "4 researcher calls writer",
            "5 writer asks its model, turn 1",
            "6 writer has its model's reply",
            "7 writer answers researcher",
            "8 researcher asks its model, turn 2",
            "9 researcher has its model's reply",
            "10 researcher answers claude",
        ]
    );
}

#[tokio::test]
async fn a_hundred_calls_of_one_session_go_on_at_once() {
    let (runtime, _keeper) = team();
    let (session, _serving) = host().0.over_pipe(mcp::serve(&runtime)).await;
    // Their meeting begins when all of them have come.
    let calls = (0..CROWD).map(|_| ask(&session, "attendee"));
    assert_eq!(futures_util::future::join_all(calls).await, vec!["We met."; CROWD]);
}

#[tokio::test]
async fn a_host_is_told_when_somebody_joins_or_leaves() {
    let (runtime, _keeper) = team();
    let bound = mcp::serve(&runtime).http("127.0.0.1:0").bind().await.unwrap();
    let url = bound.url();
    let serving = tokio::spawn(bound.serve());
    let ((near, mut near_lists), (far, mut far_lists)) = (host(), host());
    let (near, _serving) = near.over_pipe(mcp::serve(&runtime)).await;
    let far = far.over_http(url).await;
    let before = far.list_all_tools().await.unwrap().len();
    assert_eq!(near.list_all_tools().await.unwrap().len(), before);

    runtime.join(Agent::new("newcomer", "Is new.")).unwrap();
    near_lists.recv().await.unwrap();
    far_lists.recv().await.unwrap();
    assert_eq!(far.list_all_tools().await.unwrap().last().unwrap().name, "newcomer");
    assert!(runtime.leave("newcomer"));
    near_lists.recv().await.unwrap();
    far_lists.recv().await.unwrap();
    assert_eq!(near.list_all_tools().await.unwrap().len(), before);
    serving.abort();
}

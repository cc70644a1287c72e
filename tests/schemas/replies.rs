//! Replies with something that must be sent back, after the vendors' documentation.

use agentouto::{Agent, ChatMessage, DeltaSink, ToolOutput};
use serde_json::{Value, json};

use crate::capture::Capture;
use crate::features::request;
use crate::wire::{Wire, provider};

/// A conversation in which the model has reasoned, and called a tool.
pub(crate) async fn reasoned(wire: Wire) -> Vec<ChatMessage> {
    let capture = Capture::start(answer(wire)).await;
    let asking = request(wire, Agent::new("a", ""), &[ChatMessage::user("hello")], &[]);
    let reply = provider(wire, &capture.address).reply(&asking, &mut DeltaSink::none()).await.unwrap();
    assert!(reply.opaque.is_some(), "{wire:?}: the reply carries something: {reply:?}");
    let output = ToolOutput { content: "3 results".into(), is_error: false };
    let call = reply.tool_calls[0].clone();
    vec![
        ChatMessage::user("hello"),
        ChatMessage::Assistant {
            text: reply.text,
            reasoning: reply.reasoning,
            attachments: reply.attachments,
            tool_calls: reply.tool_calls,
            opaque: reply.opaque,
        },
        ChatMessage::Tool { id: call.id, name: call.name, output },
    ]
}

fn answer(wire: Wire) -> Value {
    match wire {
        // <https://ai.google.dev/gemini-api/docs/thought-signatures>, for OpenAI's format: OpenAI itself has nothing.
        Wire::Chat => json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant",
            "content": null,
            "tool_calls": [{
                "id": "call_1",
                "type": "function",
                "function": {"name": "search", "arguments": "{\"q\":1}"},
                "extra_content": {"google": {"thought_signature": "c2lnbmF0dXJl"}},
            }],
        }}]}),
        // <https://platform.openai.com/docs/guides/reasoning#encrypted-reasoning-items>
        Wire::Responses => json!({"id": "resp_1", "object": "response", "status": "completed", "output": [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "I should search."}],
                "encrypted_content": "gAAAAABo",
            },
            {
                "type": "message",
                "id": "msg_1",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Let me look.", "annotations": []}],
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "search",
                "arguments": "{\"q\":1}",
                "status": "completed",
            },
        ]}),
        // <https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking>
        Wire::Messages => json!({
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [
                {"type": "thinking", "thinking": "I should search.", "signature": "WaUjzkypQ2mUEVM36O2TxuC06KN8xyfbJwyem2dw3UR"},
                {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": 1}},
            ],
            "stop_reason": "tool_use",
            "stop_sequence": null,
            "usage": {"input_tokens": 9, "output_tokens": 9},
        }),
        // <https://ai.google.dev/gemini-api/docs/thought-signatures>
        Wire::Gemini => {
            json!({"candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [
                {"text": "I should search.", "thought": true},
                {"text": "Let me look."},
                {"functionCall": {"name": "search", "args": {"q": 1}}, "thoughtSignature": "c2lnbmF0dXJl"},
            ]}}]})
        }
    }
}

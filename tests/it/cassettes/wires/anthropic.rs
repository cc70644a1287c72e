//! [Messages](https://platform.claude.com/docs/en/api/messages).

use agentouto::{AttachmentKind, Reasoning};
use serde_json::Value;

use super::{Part, attachment, bytes, content, items, owned, text, tool, unknown};
use crate::cassettes::conversation::{Call, Conversation};

pub(super) fn read(body: &Value, conversation: &mut Conversation) -> Result<(), String> {
    conversation.most_tokens = body["max_tokens"].as_u64();
    conversation.temperature = body["temperature"].as_f64();
    let budget = body["thinking"]["budget_tokens"].as_u64().and_then(|budget| budget.try_into().ok());
    conversation.reasoning = budget.map(Reasoning::budget);
    for offered in items(&body["tools"]) {
        // Tools that run on the server have a type of their own.
        if !matches!(offered["type"].as_str(), None | Some("custom")) {
            return unknown("tool", &offered["type"]);
        }
        conversation.tools.push(tool(&offered["name"], &offered["description"], &offered["input_schema"]));
    }
    conversation.system(content(&body["system"], part)?);
    for message in items(&body["messages"]) {
        let blocks = match &message["content"] {
            Value::String(text) => vec![serde_json::json!({ "type": "text", "text": text })],
            blocks => items(blocks).cloned().collect(),
        };
        match text(&message["role"]) {
            "user" => blocks.iter().try_for_each(|block| heard(block, conversation))?,
            "assistant" => blocks.iter().try_for_each(|block| said(block, conversation))?,
            _ => return unknown("role", &message["role"]),
        }
    }
    Ok(())
}

fn heard(block: &Value, conversation: &mut Conversation) -> Result<(), String> {
    if text(&block["type"]) == "tool_result" {
        let is_error = block["is_error"] == true;
        conversation.result(owned(&block["tool_use_id"]), None, content(&block["content"], part)?, is_error);
    } else {
        conversation.user(content(&serde_json::json!([block]), part)?);
    }
    Ok(())
}

fn said(block: &Value, conversation: &mut Conversation) -> Result<(), String> {
    let turn = conversation.assistant();
    match text(&block["type"]) {
        "text" => turn.text += text(&block["text"]),
        "tool_use" => turn.calls.push(Call {
            id: owned(&block["id"]),
            name: text(&block["name"]).to_owned(),
            arguments: block["input"].clone(),
            signature: None,
        }),
        "thinking" => {
            turn.returned.extend([&block["thinking"], &block["signature"]].into_iter().filter_map(owned));
        }
        "redacted_thinking" => turn.returned.extend(owned(&block["data"])),
        _ => return unknown("block", &block["type"]),
    }
    Ok(())
}

fn part(part: &Value) -> Result<Part, String> {
    let source = &part["source"];
    let kind = match text(&part["type"]) {
        "text" => return Ok(Part::Text(text(&part["text"]).to_owned())),
        "image" => AttachmentKind::Image,
        "document" => AttachmentKind::Document,
        _ => return unknown("block", &part["type"]),
    };
    match text(&source["type"]) {
        "url" => Ok(attachment(kind, text(&source["url"]))),
        "base64" => Ok(Part::Attachment(bytes(kind, text(&source["media_type"]), text(&source["data"])))),
        _ => unknown("source", &source["type"]),
    }
}

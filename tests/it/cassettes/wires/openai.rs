//! [Chat Completions](https://platform.openai.com/docs/api-reference/chat/create).

use agentouto::AttachmentKind;
use serde_json::Value;

use super::{Part, arguments, attachment, bytes, content, contents, effort, items, owned, sound, text, tool, unknown};
use crate::cassettes::conversation::{Call, Conversation};

pub(super) fn read(body: &Value, conversation: &mut Conversation) -> Result<(), String> {
    conversation.most_tokens = body["max_completion_tokens"].as_u64().or(body["max_tokens"].as_u64());
    conversation.temperature = body["temperature"].as_f64();
    conversation.reasoning = effort(text(&body["reasoning_effort"]));
    for offered in items(&body["tools"]) {
        let function = &offered["function"];
        if !function.is_object() {
            return unknown("tool", &offered["type"]);
        }
        conversation.tools.push(tool(&function["name"], &function["description"], &function["parameters"]));
    }
    items(&body["messages"]).try_for_each(|said| message(said, conversation))
}

fn message(message: &Value, conversation: &mut Conversation) -> Result<(), String> {
    let said = &message["content"];
    match text(&message["role"]) {
        "system" | "developer" => conversation.system(content(said, part)?),
        "user" => contents(said, part)?.into_iter().for_each(|content| conversation.user(content)),
        "assistant" => {
            let turn = conversation.assistant();
            for content in contents(said, part)? {
                turn.text += &content.text;
            }
            // DeepSeek wants the reasoning back beside the calls that it led to; OpenRouter signs or encrypts it.
            turn.returned.extend(owned(&message["reasoning_content"]));
            for detail in items(&message["reasoning_details"]) {
                turn.returned.extend([&detail["signature"], &detail["data"]].into_iter().filter_map(owned));
            }
            turn.calls.extend(items(&message["tool_calls"]).map(|call| Call {
                id: owned(&call["id"]),
                name: text(&call["function"]["name"]).to_owned(),
                arguments: arguments(&call["function"]["arguments"]),
                // Google signs calls here.
                signature: call.get("extra_content").filter(|extra| !extra.is_null()).map(Value::to_string),
            }));
        }
        "tool" => conversation.result(owned(&message["tool_call_id"]), None, content(said, part)?, false),
        _ => return unknown("role", &message["role"]),
    }
    Ok(())
}

fn part(part: &Value) -> Result<Part, String> {
    Ok(match text(&part["type"]) {
        "text" => Part::Text(text(&part["text"]).to_owned()),
        "refusal" => Part::Text(text(&part["refusal"]).to_owned()),
        "image_url" if part["image_url"].is_string() => attachment(AttachmentKind::Image, text(&part["image_url"])),
        "image_url" => attachment(AttachmentKind::Image, text(&part["image_url"]["url"])),
        "input_audio" => {
            let media_type = sound(text(&part["input_audio"]["format"]));
            Part::Attachment(bytes(AttachmentKind::Audio, media_type, text(&part["input_audio"]["data"])))
        }
        "file" if part["file"]["file_data"].is_string() => {
            attachment(AttachmentKind::Document, text(&part["file"]["file_data"]))
        }
        // Reasoning in the content: nobody has to send it back.
        "thinking" => Part::Text(String::new()),
        _ => return unknown("part", &part["type"]),
    })
}

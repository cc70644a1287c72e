//! [Responses](https://platform.openai.com/docs/api-reference/responses/create).

use agentouto::AttachmentKind;
use serde_json::Value;

use super::{Part, arguments, attachment, bytes, content, contents, effort, items, owned, sound, text, tool, unknown};
use crate::cassettes::conversation::{Call, Conversation};

pub(super) fn read(body: &Value, conversation: &mut Conversation) -> Result<(), String> {
    if body["previous_response_id"].is_string() {
        return Err("it goes on from a response that the server keeps".to_owned());
    }
    conversation.most_tokens = body["max_output_tokens"].as_u64();
    conversation.temperature = body["temperature"].as_f64();
    conversation.reasoning = effort(text(&body["reasoning"]["effort"]));
    for offered in items(&body["tools"]) {
        if text(&offered["type"]) != "function" {
            return unknown("tool", &offered["type"]);
        }
        conversation.tools.push(tool(&offered["name"], &offered["description"], &offered["parameters"]));
    }
    conversation.system(content(&body["instructions"], part)?);
    if let Some(text) = body["input"].as_str() {
        conversation.user(text.into());
    }
    items(&body["input"]).try_for_each(|said| item(said, conversation))
}

fn item(item: &Value, conversation: &mut Conversation) -> Result<(), String> {
    match item["type"].as_str().unwrap_or("message") {
        "message" => message(item, conversation)?,
        "function_call" => conversation.assistant().calls.push(Call {
            id: owned(&item["call_id"]),
            name: text(&item["name"]).to_owned(),
            arguments: arguments(&item["arguments"]),
            signature: None,
        }),
        "function_call_output" => {
            conversation.result(owned(&item["call_id"]), None, content(&item["output"], part)?, false);
        }
        // Without its encrypted content a reasoning item tells the server nothing: its id is known only to a server
        // that keeps responses, and its summary is for people.
        "reasoning" => conversation.assistant().returned.extend(owned(&item["encrypted_content"])),
        _ => return unknown("item", &item["type"]),
    }
    Ok(())
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
        }
        _ => return unknown("role", &message["role"]),
    }
    Ok(())
}

fn part(part: &Value) -> Result<Part, String> {
    Ok(match text(&part["type"]) {
        "input_text" | "output_text" | "text" => Part::Text(text(&part["text"]).to_owned()),
        "refusal" => Part::Text(text(&part["refusal"]).to_owned()),
        "input_image" if part["image_url"].is_string() => attachment(AttachmentKind::Image, text(&part["image_url"])),
        "input_file" if part["file_data"].is_string() => attachment(AttachmentKind::Document, text(&part["file_data"])),
        "input_file" if part["file_url"].is_string() => attachment(AttachmentKind::Document, text(&part["file_url"])),
        "input_audio" => {
            let media_type = sound(text(&part["input_audio"]["format"]));
            Part::Attachment(bytes(AttachmentKind::Audio, media_type, text(&part["input_audio"]["data"])))
        }
        _ => return unknown("part", &part["type"]),
    })
}

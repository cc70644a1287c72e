//! [`generateContent`](https://ai.google.dev/api/generate-content). Either spelling of a key is read, `functionCall` and
//! `function_call`, for Google takes both.

use agentouto::{Attachment, Content, Reasoning};
use serde_json::Value;

use super::{Part, bytes, content, either, items, kind_of, owned, text, tool, unknown};
use crate::cassettes::conversation::{Call, Conversation};

pub(super) fn read(path: &str, body: &Value, conversation: &mut Conversation) -> Result<(), String> {
    let model = path.rsplit("models/").next().and_then(|rest| rest.split(':').next());
    conversation.model = model.unwrap_or_default().to_owned();
    let settings = either(body, "generationConfig", "generation_config");
    conversation.most_tokens = either(settings, "maxOutputTokens", "max_output_tokens").as_u64();
    conversation.temperature = settings["temperature"].as_f64();
    let thinking = either(settings, "thinkingConfig", "thinking_config");
    let budget = either(thinking, "thinkingBudget", "thinking_budget").as_u64();
    conversation.reasoning = budget.and_then(|budget| budget.try_into().ok()).map(Reasoning::budget);
    for offered in items(&body["tools"]) {
        functions(offered, conversation)?;
    }
    let system = either(body, "systemInstruction", "system_instruction");
    conversation.system(content(&system["parts"], part)?);
    for message in items(&body["contents"]) {
        for part in items(&message["parts"]) {
            match message["role"].as_str().unwrap_or("user") {
                "user" | "function" => heard(part, conversation)?,
                "model" => said(part, conversation)?,
                _ => return unknown("role", &message["role"]),
            }
        }
    }
    Ok(())
}

fn functions(offered: &Value, conversation: &mut Conversation) -> Result<(), String> {
    for (kind, value) in offered.as_object().into_iter().flatten() {
        if value.is_null() {
            continue;
        }
        if !matches!(&**kind, "functionDeclarations" | "function_declarations") {
            return unknown("tool", &kind.as_str().into());
        }
        for function in items(value) {
            let schema = either(function, "parametersJsonSchema", "parameters_json_schema");
            let schema = if schema.is_null() { &function["parameters"] } else { schema };
            conversation.tools.push(tool(&function["name"], &function["description"], schema));
        }
    }
    Ok(())
}

fn heard(heard: &Value, conversation: &mut Conversation) -> Result<(), String> {
    let response = either(heard, "functionResponse", "function_response");
    if response.is_null() {
        conversation.user(content(&serde_json::json!([heard]), part)?);
        return Ok(());
    }
    // Whether it is a failure is said by the key, which everybody names as they like.
    let Content { attachments, .. } = content(&response["parts"], part)?;
    let result = match &response["response"] {
        Value::Object(entries) if entries.len() == 1 => entries.values().next().cloned().unwrap_or_default(),
        other => other.clone(),
    };
    let text = owned(&result).unwrap_or_else(|| result.to_string()).into();
    conversation.result(owned(&response["id"]), owned(&response["name"]), Content { text, attachments }, false);
    Ok(())
}

fn said(said: &Value, conversation: &mut Conversation) -> Result<(), String> {
    let turn = conversation.assistant();
    let signature = owned(either(said, "thoughtSignature", "thought_signature"));
    let call = either(said, "functionCall", "function_call");
    if !call.is_null() {
        let name = text(&call["name"]).to_owned();
        turn.calls.push(Call { id: owned(&call["id"]), name, arguments: call["args"].clone(), signature });
        return Ok(());
    }
    turn.returned.extend(signature);
    match part(said)? {
        _ if said["thought"] == true => {}
        Part::Text(text) => turn.text += &text,
        Part::Attachment(_) => return Err("the model made an attachment".to_owned()),
    }
    Ok(())
}

fn part(part: &Value) -> Result<Part, String> {
    if let Some(text) = owned(&part["text"]) {
        return Ok(Part::Text(text));
    }
    let (inline, file) = (either(part, "inlineData", "inline_data"), either(part, "fileData", "file_data"));
    let media_type = |data| text(either(data, "mimeType", "mime_type"));
    if inline.is_object() {
        let media_type = media_type(inline);
        return Ok(Part::Attachment(bytes(kind_of(media_type), media_type, text(&inline["data"]))));
    }
    if file.is_object() {
        let url = text(either(file, "fileUri", "file_uri"));
        return Ok(Part::Attachment(Attachment::url(kind_of(media_type(file)), url)));
    }
    let keys: Vec<&str> = part.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    Err(format!("agentouto has no part of {}", keys.join(", ")))
}

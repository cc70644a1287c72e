//! Decides whether an error says that the server, or the model, supports no tools. Plain functions.

use crate::provider::{ProviderError, ProviderErrorKind};

/// Returns whether an error says that tools are not supported at all. Servers have no code for it, so their words
/// decide. Words about one call, about an option beside the tools, or about a combination of both do not count.
pub(super) fn refuses_tools(error: &ProviderError) -> bool {
    let is_refusal = match error.status {
        Some(status) => matches!(status, 400 | 404 | 501),
        None => error.kind == ProviderErrorKind::InvalidRequest,
    };
    is_refusal && error.partial.is_none() && says_no_tools(&error.message.to_lowercase())
}

/// The options that must be set before a server takes tools, as vLLM and llama.cpp name them.
const OPTIONS: [&str; 2] = ["--enable-auto-tool-choice", "--jinja"];
/// Words that relate a message to the field `tools`.
const UNKNOWN: [&str; 4] = ["unrecognized", "unknown", "unexpected", "extra"];

fn says_no_tools(message: &str) -> bool {
    if OPTIONS.iter().any(|option| message.contains(option)) {
        return true;
    }
    let is_part = |c: char| c.is_alphanumeric() || "_-'.[".contains(c);
    let words: Vec<&str> = message.split(|c| !is_part(c)).map(|word| word.trim_matches(['.', '\''])).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let names_the_field = || words.contains(&"tools") && words.len() < 16;
    words.iter().any(|word| UNKNOWN.contains(word)) && names_the_field()
        || (0..words.len()).any(|at| refuses_after(&words[at..]) || refuses_before(&words, at))
}

/// Returns whether these words say "… does not support tools", with up to two words between.
fn refuses_after(words: &[&str]) -> bool {
    let verb = match words {
        [_, "not", "support", ..] => 3,
        ["doesn't" | "don't", "support", ..] => 2,
        ["endpoints", "found", "that", "support", ..] => 4,
        _ => return false,
    };
    (verb..words.len().min(verb + 3)).any(|at| tools(&words[at..]).is_some())
}

/// Returns whether these words say "tools are not supported", about all tools and without a condition.
fn refuses_before(words: &[&str], at: usize) -> bool {
    const OF_SOME: [&str; 6] = ["parallel", "strict", "built-in", "builtin", "custom", "multiple"];
    const COMBINED: [&str; 5] = ["with", "when", "together", "while", "if"];
    let Some(length) = tools(&words[at..]) else { return false };
    let rest = &words[at + length..];
    let rest = match rest {
        ["is" | "are", rest @ ..] => rest,
        rest => rest,
    };
    let rest = match rest {
        ["not", "currently", rest @ ..] | ["currently", "not", rest @ ..] | ["not", rest @ ..] => rest,
        ["unsupported" | "disabled", ..] => &["supported"],
        _ => return false,
    };
    let is_refusal = matches!(rest, ["supported" | "available" | "enabled" | "allowed", ..]);
    let is_combined = matches!(rest, [_, word, rest @ ..]
        if COMBINED.contains(word) && !matches!(rest, ["this" | "the", "model", ..] | ["this" | "the", "selected", "model", ..]));
    is_refusal && !is_combined && !(at > 0 && OF_SOME.contains(&words[at - 1]))
}

/// Returns the number of words that name tools in general.
fn tools(words: &[&str]) -> Option<usize> {
    match words {
        ["tool" | "function", "use" | "usage" | "calling" | "calls", ..] => Some(2),
        ["tools" | "functions", ..] => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, words: &str, expected: bool) {
        let error =
            ProviderError { status: Some(status), ..ProviderError::new(ProviderErrorKind::InvalidRequest, words) };
        assert_eq!(refuses_tools(&error), expected, "{status} {words}");
    }

    #[test]
    fn only_what_is_said_of_tools_in_general_is_a_refusal_of_tools() {
        for words in [
            "registry.ollama.ai/library/gemma:2b does not support tools",
            "This model doesn't support tool use",
            "This model does not support function calling.",
            "the model does not support native tool calling",
            "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
            "tools param requires --jinja flag",
            "No endpoints found that support tool use. Try disabling \"search\".",
            "`tools` is not supported in this model. For a list of supported models, see the documentation",
            "Tool calling is not supported with this model",
            "Function calling is not enabled for models/gemma-3",
            "Unrecognized request argument supplied: tools",
            "unknown field `tools`",
        ] {
            for status in [400, 404, 501] {
                check(status, words, true);
            }
            check(500, words, false);
            check(429, words, false);
        }
        for words in [
            "Failed to parse tool call arguments as JSON: unexpected end of input",
            "Function tools with reasoning_effort are not supported for gpt-5.5 in /v1/chat/completions. Please use /v1/responses instead or set reasoning_effort to 'none'.",
            "In context=('properties', 'core'), 'required' is required to be supplied and to be an array",
            "tool_choice 'required' is not supported",
            "This model does not support tool_choice required",
            "parallel tool calls are not supported",
            "tools are not supported with streaming",
            "tools[0].function: unknown keyword `strict`",
            "Invalid schema for function 'cpu': missing properties",
            "messages: too many images",
        ] {
            check(400, words, false);
            check(500, words, false);
        }
    }
}

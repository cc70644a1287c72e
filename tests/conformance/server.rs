//! The server that MCP's official conformance suite asks: `cargo run --features mcp-server --example mcp_conformance_server`
//!
//! The suite calls tools by names of its own and expects certain contents. Here they are agents and callable users;
//! what the suite sees of them is what every host sees. It prints the address, which is `127.0.0.1:0` unless one is given.

use std::sync::Arc;
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::{Agent, Attachment, AttachmentKind, CallError, Content, Forward, Reply, Runtime, RuntimeBuilder, mcp};

/// One red pixel.
const PNG: &[u8] = b"\x89PNG\x0d\x0a\x1a\x0a\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde\0\0\0\x0cIDATx\x9cc\xf8\xcf\xc0\0\0\x03\x01\x01\0\xc9\xfe\x92\xef\0\0\0\0IEND\xaeB`\x82";
/// No sound at 8 kHz.
const WAV: &[u8] = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\0\0\0\0";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let image = || Attachment::inline(AttachmentKind::Image, "image/png", PNG);
    let document = || Attachment::inline(AttachmentKind::Document, "text/plain", b"A text.").named("text.txt");
    let asking = [Reply::call_agent("test_simple_text", "Say something."), Reply::finish("Done.")];
    let slow = ScriptedReply::from(Reply::finish("At last.")).after(Duration::from_millis(500));
    let script =
        Scripted::new().replies_to_any("test_tool_with_progress", asking).replies_to_any("test_reconnection", [slow]);
    let builder = Runtime::builder()
        .provider("script", script)
        .agent(Agent::new("test_tool_with_progress", "Asks another, which takes some steps."))
        .agent(Agent::new("test_reconnection", "Takes its time."));
    let runtime = [
        ("test_simple_text", Ok("This is a simple text response for testing.".into())),
        ("test_image_content", Ok(Content::default().attach(image()))),
        (
            "test_audio_content",
            Ok(Content::default().attach(Attachment::inline(AttachmentKind::Audio, "audio/wav", WAV))),
        ),
        ("test_embedded_resource", Ok(Content::default().attach(document()))),
        ("test_multiple_content_types", Ok(Content::from("Several things:").attach(image()).attach(document()))),
        ("test_error_handling", Err(CallError::failed("This tool intentionally returns an error for testing"))),
    ]
    .into_iter()
    .fold(builder, |builder, (name, answer)| answering(builder, name, answer))
    .build()?;

    let names = ["simple_text", "image_content", "audio_content", "embedded_resource", "multiple_content_types"];
    let names = names
        .into_iter()
        .chain(["error_handling", "tool_with_progress", "reconnection"])
        .map(|name| format!("test_{name}"));
    // The suite calls without arguments.
    let server = mcp::serve(&runtime).agents(names).default_message("Answer.");
    let bound = server.http(address).bind().await?;
    println!("{}", bound.url());
    bound.serve().await;
    Ok(())
}

/// A user that always answers the same.
fn answering(builder: RuntimeBuilder, name: &str, answer: Result<Content, CallError>) -> RuntimeBuilder {
    builder.user(name, "Answers the suite.", move |_: Arc<Forward>| std::future::ready(answer.clone()))
}

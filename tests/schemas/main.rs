//! What the providers send, against the vendors' own descriptions of it.
//!
//! The JSON Schemas are read from the folder that `AGENTOUTO_SCHEMAS` names. Gemini's description is in a Python package:
//! it runs when `AGENTOUTO_COUNTERPARTS` is 1, and `.ci/counterparts` installs it.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod capture;
mod features;
mod replies;
mod vendor;
#[path = "../common/wire.rs"]
mod wire;

use std::sync::Arc;

use agentouto::DeltaSink;
use agentouto::providers::anthropic::Anthropic;
use serde_json::{Value, json};

use self::capture::Capture;
use self::features::{Feature, features};
use self::vendor::Schema;
use self::wire::{Wire, provider};

#[tokio::test]
async fn chat_completions_are_as_openai_describes_them() {
    conforms(Wire::Chat).await;
}

#[tokio::test]
async fn responses_are_as_openai_describes_them() {
    conforms(Wire::Responses).await;
}

#[tokio::test]
async fn messages_are_as_anthropic_describes_them() {
    conforms(Wire::Messages).await;
}

#[tokio::test]
async fn gemini_requests_are_as_google_describes_them() {
    conforms(Wire::Gemini).await;
}

/// Sends every feature, whole and streamed, and has all bodies checked.
async fn conforms(wire: Wire) {
    if !Wire::ALL.contains(&wire) {
        eprintln!("skipped: {wire:?} has no provider yet");
        return;
    }
    let Some(schema) = Schema::of(wire) else { return };
    let mut bodies = Vec::new();
    for feature in features(wire).await {
        for is_streamed in [false, true] {
            bodies
                .push((format!("{} (streamed: {is_streamed})", feature.name), sent(wire, &feature, is_streamed).await));
        }
    }
    let faults = schema.faults(&bodies.iter().map(|(_, body)| body.clone()).collect::<Vec<_>>());
    let found: Vec<_> = bodies
        .iter()
        .zip(faults)
        .filter_map(|((name, body), fault)| Some(format!("{name}: {}\n{body}", fault?)))
        .collect();
    assert!(found.is_empty(), "{wire:?}: {} of {} bodies:\n{}", found.len(), bodies.len(), found.join("\n\n"));

    // A description that takes anything would prove nothing.
    let (mut unknown, mut mistyped) = (bodies[0].1.clone(), bodies[0].1.clone());
    unknown["no_such_field"] = json!(1);
    let list = ["messages", "input", "contents"].into_iter().find(|list| mistyped.get(list).is_some()).unwrap();
    mistyped[list][0]["role"] = json!(1);
    assert!(schema.faults(&[unknown, mistyped]).iter().all(Option::is_some), "{wire:?}: the description is asleep");
}

/// The body that is sent for a feature.
async fn sent(wire: Wire, feature: &Feature, is_streamed: bool) -> Value {
    let mut capture = Capture::start(json!({})).await;
    let provider = match (wire, is_streamed) {
        // Prompts are cached in one of the two.
        (Wire::Messages, true) => Arc::new(Anthropic::keyless(&capture.address).prompt_caching(true)),
        _ => provider(wire, &capture.address),
    };
    let mut observer = |_| {};
    let mut deltas = if is_streamed { DeltaSink::to(&mut observer) } else { DeltaSink::none() };
    // Whatever the provider makes of an empty answer, it has sent its request.
    let asking = provider.reply(&feature.request, &mut deltas);
    tokio::select! {
        body = capture.body() => body,
        result = asking => match capture.body_now() {
            Some(body) => body,
            None => panic!("{wire:?}, {}: nothing was sent: {result:?}", feature.name),
        },
    }
}

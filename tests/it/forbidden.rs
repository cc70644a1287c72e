//! The switches that forbid all requests to models. They hold for a whole process, so each is tried in one of its own.
#![cfg(feature = "http")]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentouto::providers::anthropic::Anthropic;
use agentouto::providers::openai::OpenAi;
use agentouto::{DeltaSink, Provider, ProviderErrorKind, ProviderExt};
use serde_json::json;

use crate::openai::hello;
use crate::server::{Answer, Server};

const VARIABLE: &str = "AGENTOUTO_FORBID_REQUESTS";
/// Tells the child to use the function.
const BY_FUNCTION: &str = "AGENTOUTO_TEST_FORBIDS_REQUESTS";

#[test]
fn a_process_can_forbid_all_requests_to_models() {
    let child = |variables: &[(&str, &str)]| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "--ignored", "--nocapture", "forbidden::what_becomes_of_a_request"]);
        child.env_remove(VARIABLE).env_remove(BY_FUNCTION).envs(variables.iter().copied());
        let output = child.output().unwrap();
        assert!(output.status.success(), "{variables:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for switch in [(VARIABLE, "1"), (VARIABLE, "true"), (BY_FUNCTION, "1")] {
        assert!(child(&[switch]).contains("is refused"), "{switch:?}");
    }
    for other in [&[][..], &[(VARIABLE, "0")], &[(VARIABLE, "")]] {
        assert!(child(other).contains("is sent"), "{other:?}");
    }
}

#[tokio::test]
#[ignore = "run by the test above, in an environment of its own"]
async fn what_becomes_of_a_request() {
    if std::env::var_os(BY_FUNCTION).is_some() {
        agentouto::providers::forbid_requests();
    }
    let answer = Answer::json(200, &json!({"choices": [{"message": {"content": "done"}, "finish_reason": "stop"}]}));
    let mut server = Server::start([answer]).await;
    let tokens = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&tokens);
    let openai = OpenAi::keyless(&server.base_url).header_source("authorization", move || {
        asked.fetch_add(1, Ordering::SeqCst);
        async { Ok("Bearer x") }
    });
    let provider = openai.or(Anthropic::keyless(&server.base_url));
    match provider.reply(&hello(), &mut DeltaSink::none()).await {
        Ok(_) => println!("it is sent"),
        Err(error) => {
            assert_eq!(error.kind, ProviderErrorKind::Other);
            let said = "not sent: requests to models are forbidden in this process, by `providers::forbid_requests` \
                        or by the environment variable AGENTOUTO_FORBID_REQUESTS";
            assert_eq!(&*error.message, said);
            assert!(server.heard_nothing());
            assert_eq!(tokens.load(Ordering::SeqCst), 0);
            println!("it is refused");
        }
    }
}

//! The tests' team in a process of its own, for hosts that are not in Rust: on standard input and output, or at the address
//! given. It says on standard error what its gate says, and where it listens.

use std::sync::Arc;

use agentouto::{Agent, CallError, Forward, mcp};

#[path = "team.rs"]
mod team;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = team::team_with(team::PendingTool::new(|signal| eprintln!("{signal}")));
    let hiring = runtime.clone();
    runtime.join_user("recruiter", "Lets somebody join.", move |_: Arc<Forward>| {
        let joined =
            hiring.join(Agent::new("newcomer", "Is new.")).map_err(|error| CallError::failed(error.to_string()));
        std::future::ready(joined.map(|()| "They are here."))
    })?;
    let server = mcp::serve(&runtime).agents(team::SHOWN);
    match std::env::args().nth(1) {
        None => server.stdio().await?,
        Some(address) => {
            let bound = server.http(address).bearer_token("s3cret").bind().await?;
            eprintln!("{}", bound.url());
            bound.serve().await;
        }
    }
    Ok(())
}

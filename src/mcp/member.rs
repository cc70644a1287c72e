//! A runtime that has the tools of servers.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Weak};

use super::definition::{Definition, Fingerprint, Refused};
use super::link::Link;
use super::names;
use super::offered::Offered;
use crate::error::BuildError;
use crate::message::Name;
use crate::name::{CALL_AGENT, FINISH, USER, is_reserved};
use crate::router::Router;
use crate::runtime::Runtime;
use crate::tool::Tool;

/// How often names are given anew when something else takes one in the same moment.
const ATTEMPTS: usize = 10;

/// One runtime, which this does not keep in memory. Dropped, the tools leave it.
pub(super) struct Member {
    router: Weak<Router>,
    links: Arc<[Arc<Link>]>,
    /// What it has of ours.
    has: Vec<(Name, Fingerprint)>,
    refused: Vec<Refused>,
}

impl Member {
    pub(super) fn join(runtime: &Runtime, links: &Arc<[Arc<Link>]>) -> Result<Self, BuildError> {
        let (router, links) = (Arc::downgrade(&runtime.router), Arc::clone(links));
        let mut member = Self { router, links, has: Vec::new(), refused: Vec::new() };
        member.settle(runtime)?;
        Ok(member)
    }

    /// The runtime, if somebody still has it.
    pub(super) fn runtime(&self) -> Option<Runtime> {
        self.router.upgrade().map(|router| Runtime { router })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.router.strong_count() > 0
    }

    pub(super) fn is(&self, runtime: &Runtime) -> bool {
        self.router.as_ptr() == Arc::as_ptr(&runtime.router)
    }

    /// Replaces the tools that its runtime has of ours by those that there are now.
    pub(super) fn settle(&mut self, runtime: &Runtime) -> Result<(), BuildError> {
        let mut last = Ok(());
        for _ in 0..ATTEMPTS {
            last = self.exchange(runtime);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    fn exchange(&mut self, runtime: &Runtime) -> Result<(), BuildError> {
        let tools: Vec<(Arc<Link>, String, Arc<Definition>)> = self.links.iter().flat_map(approved).collect();
        let named: Vec<(&str, &str)> =
            tools.iter().map(|(_, server, definition)| (server.as_str(), definition.clean.as_str())).collect();
        let leaving = self.names();
        let names = {
            let (ours, snapshot) = (leaving.iter().collect::<HashSet<&Name>>(), runtime.router.registry().snapshot());
            let theirs = snapshot.tools.names().filter(|name| !ours.contains(name));
            let theirs: HashSet<&str> = theirs.map(|name| &**name).collect();
            names::offer(&named, |name| match () {
                () if theirs.contains(name) || is_reserved(name, &[CALL_AGENT, FINISH]) => Some("a tool"),
                () if snapshot.roster.contains(name) || is_reserved(name, &[USER]) => Some("an agent, actor or user"),
                () => None,
            })
        };
        let (mut joining, mut has, mut refused) = (Vec::<Arc<dyn Tool>>::new(), Vec::new(), Vec::new());
        for (name, (link, _, definition)) in names.into_iter().zip(tools) {
            match name {
                Ok(name) => {
                    has.push((Arc::clone(&name), definition.fingerprint.clone()));
                    joining.push(Arc::new(Offered { name, link, definition }));
                }
                Err(reason) => refused.push(Refused::new(&definition.tool, reason).of(&link.name)),
            }
        }
        if has != self.has {
            runtime.exchange_tools(&leaving, joining)?;
            self.has = has;
        }
        if refused != self.refused {
            refused.iter().for_each(|refused| tracing::warn!("{refused}"));
            self.refused = refused;
        }
        Ok(())
    }

    fn names(&self) -> Vec<Name> {
        self.has.iter().map(|(name, _)| Arc::clone(name)).collect()
    }

    pub(super) fn refused(&self) -> &[Refused] {
        &self.refused
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime()
            && let Err(error) = runtime.exchange_tools(&self.names(), Vec::new())
        {
            tracing::warn!(%error, "tools of MCP servers could not leave a runtime");
        }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("has", &self.names()).finish_non_exhaustive()
    }
}

/// A server's tools that may be offered, with its name as it stands in theirs.
fn approved(link: &Arc<Link>) -> Vec<(Arc<Link>, String, Arc<Definition>)> {
    let server = names::clean(&link.name).unwrap_or_default();
    let catalogue = link.catalogue();
    let tools = catalogue.tools().filter(|tool| catalogue.is_approved(tool));
    tools.map(|tool| (Arc::clone(link), server.clone(), Arc::clone(tool))).collect()
}

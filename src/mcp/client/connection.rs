//! One connected server: the approval of its tools, its resources and its prompts.

use std::fmt;
use std::sync::Arc;

use rmcp::model::{
    ClientRequest, GetPromptRequest, GetPromptRequestParams, ListPromptsRequest, ListResourceTemplatesRequest,
    ListResourcesRequest, PaginatedRequestParams, ReadResourceRequest, ReadResourceRequestParams, Role, ServerResult,
};
use serde_json::{Map, Value};
use tokio::time::timeout;

use crate::content::Content;
use crate::mcp::client::definition::Fingerprint;
use crate::mcp::client::error::Error;
use crate::mcp::client::output;
use crate::mcp::client::pages::{self, Limits};
use crate::mcp::client::supervisor::Supervisor;
use crate::mcp::client::visible::{quoted, visible};
use crate::name::Name;

/// The most entries of a list.
const MAX_ENTRIES: usize = 100_000;

/// A handle to one connected server. Cheap to clone; it does not keep the server running.
#[derive(Clone)]
pub struct Connection {
    supervisor: Arc<Supervisor>,
}

/// A resource that can be read with [`Connection::read_resource`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resource {
    /// The URI; for a template, a URI template ([RFC 6570](https://www.rfc-editor.org/rfc/rfc6570)).
    pub uri: Arc<str>,
    /// The name of the resource.
    pub name: Arc<str>,
    /// A description of the resource.
    pub description: Option<Arc<str>>,
    /// The media type of the resource.
    pub media_type: Option<Arc<str>>,
    /// The size of the resource in bytes.
    pub size: Option<u64>,
}

/// A template of messages to a model, see [`Connection::prompt`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prompt {
    /// The name of the prompt.
    pub name: Arc<str>,
    /// The purpose of the prompt.
    pub description: Option<Arc<str>>,
    /// The arguments of the prompt.
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a [`Prompt`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromptArgument {
    /// The name of the argument.
    pub name: Arc<str>,
    /// A description of the argument.
    pub description: Option<Arc<str>>,
    /// `true` if the argument is required.
    pub is_required: bool,
}

/// A message of a prompt whose arguments are filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromptMessage {
    /// `true` for a message of the assistant, `false` for a message of the user.
    pub is_assistant: bool,
    /// The content of the message.
    pub content: Content,
}

impl Connection {
    pub(crate) fn new(supervisor: &Arc<Supervisor>) -> Self {
        Self { supervisor: Arc::clone(supervisor) }
    }

    /// The server's name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.supervisor.name
    }

    /// Approves a tool's definition as [`Connections::tools`](crate::mcp::Connections::tools) has shown it. From then
    /// on the tool is offered.
    ///
    /// `tool` is the server's name for it.
    ///
    /// # Errors
    ///
    /// When the server has no such tool, or its definition has changed since it was shown.
    pub fn approve(&self, tool: &str, shown: &Fingerprint) -> Result<(), Error> {
        match self.supervisor.change(|catalogue| catalogue.approve(tool, shown)) {
            Some(true) => Ok(()),
            Some(false) => Err(Error::Changed { server: Arc::clone(&self.supervisor.name), tool: tool.into() }),
            None => {
                let known =
                    self.supervisor.catalogue().tools().map(|definition| Arc::clone(&definition.tool)).collect();
                Err(Error::Unknown { name: tool.into(), known })
            }
        }
    }

    /// Lists the server's resources.
    ///
    /// # Errors
    ///
    /// When the server does not answer in time or ends, or when its list has more bytes than
    /// [`max_message_bytes`](crate::mcp::ServerConfig::max_message_bytes). After 100,000 entries no further page is
    /// requested.
    pub async fn resources(&self) -> Result<Vec<Resource>, Error> {
        self.pages(
            |params| {
                ClientRequest::ListResourcesRequest(ListResourcesRequest {
                    method: Default::default(),
                    params: Some(params),
                    extensions: Default::default(),
                })
            },
            |answer| match answer {
                ServerResult::ListResourcesResult(page) => {
                    Some((page.resources.into_iter().map(Resource::from).collect(), page.next_cursor))
                }
                _ => None,
            },
        )
        .await
    }

    /// Lists the server's resource templates: resources whose URI has variables to fill in.
    ///
    /// # Errors
    ///
    /// As [`resources`](Self::resources).
    pub async fn resource_templates(&self) -> Result<Vec<Resource>, Error> {
        self.pages(
            |params| {
                ClientRequest::ListResourceTemplatesRequest(ListResourceTemplatesRequest {
                    method: Default::default(),
                    params: Some(params),
                    extensions: Default::default(),
                })
            },
            |answer| match answer {
                ServerResult::ListResourceTemplatesResult(page) => {
                    Some((page.resource_templates.into_iter().map(Resource::from).collect(), page.next_cursor))
                }
                _ => None,
            },
        )
        .await
    }

    /// The contents of a resource: its text, and an attachment for any part that is not text.
    ///
    /// # Errors
    ///
    /// As [`resources`](Self::resources), and when there is no such resource.
    pub async fn read_resource(&self, uri: impl Into<String>) -> Result<Content, Error> {
        let request = ReadResourceRequest::new(ReadResourceRequestParams::new(uri.into()));
        match self.request(ClientRequest::ReadResourceRequest(request)).await? {
            ServerResult::ReadResourceResult(result) => Ok(output::resource(&result.contents)),
            _ => Err(self.unexpected()),
        }
    }

    /// Lists the server's prompts.
    ///
    /// # Errors
    ///
    /// As [`resources`](Self::resources).
    pub async fn prompts(&self) -> Result<Vec<Prompt>, Error> {
        self.pages(
            |params| {
                ClientRequest::ListPromptsRequest(ListPromptsRequest {
                    method: Default::default(),
                    params: Some(params),
                    extensions: Default::default(),
                })
            },
            |answer| match answer {
                ServerResult::ListPromptsResult(page) => {
                    Some((page.prompts.into_iter().map(Prompt::from).collect(), page.next_cursor))
                }
                _ => None,
            },
        )
        .await
    }

    /// The messages of a prompt, with its arguments filled in.
    ///
    /// # Errors
    ///
    /// As [`resources`](Self::resources), and when there is no such prompt or an argument is missing.
    pub async fn prompt<K: Into<String>, V: Into<String>>(
        &self,
        name: impl Into<String>,
        arguments: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Vec<PromptMessage>, Error> {
        let filled: Map<String, Value> =
            arguments.into_iter().map(|(name, value)| (name.into(), Value::String(value.into()))).collect();
        let mut params = GetPromptRequestParams::new(name.into());
        params.arguments = Some(filled);
        match self.request(ClientRequest::GetPromptRequest(GetPromptRequest::new(params))).await? {
            ServerResult::GetPromptResult(result) => {
                let message = |message: &rmcp::model::PromptMessage| PromptMessage {
                    is_assistant: message.role == Role::Assistant,
                    content: output::block(&message.content),
                };
                Ok(result.messages.iter().map(message).collect())
            }
            _ => Err(self.unexpected()),
        }
    }

    /// All pages of a list, within `total_timeout`.
    async fn pages<T>(
        &self,
        request: impl Fn(PaginatedRequestParams) -> ClientRequest,
        read: impl Fn(ServerResult) -> Option<(Vec<T>, Option<String>)>,
    ) -> Result<Vec<T>, Error> {
        let settings = &self.supervisor.server.settings;
        let most = Limits { entries: MAX_ENTRIES, bytes: settings.max_message_bytes };
        let ask = async |params| {
            let answer = self.supervisor.request(request(params), None).await;
            answer.map_err(|failure| failure.to_string())
        };
        let listing = timeout(settings.total_timeout, pages::all(most, ask, read));
        let listed =
            listing.await.unwrap_or_else(|_| Err(format!("no whole list within {:?}", settings.total_timeout)));
        listed.map_err(|reason| self.error(&reason))
    }

    async fn request(&self, request: ClientRequest) -> Result<ServerResult, Error> {
        let answer = self.supervisor.request(request, None).await;
        answer.map_err(|failure| self.error(&failure.to_string()))
    }

    fn unexpected(&self) -> Error {
        self.error("it answered with something else than it was asked for")
    }

    fn error(&self, reason: &str) -> Error {
        Error::Request { server: Arc::clone(&self.supervisor.name), reason: quoted(reason).into() }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("name", &self.supervisor.name).finish_non_exhaustive()
    }
}

/// A name or a description, without invisible characters.
fn shown(text: String) -> Arc<str> {
    visible(&text).into()
}

impl From<rmcp::model::Resource> for Resource {
    fn from(resource: rmcp::model::Resource) -> Self {
        Self {
            uri: resource.uri.into(),
            name: shown(resource.name),
            description: resource.description.map(shown),
            media_type: resource.mime_type.map(shown),
            size: resource.size,
        }
    }
}

impl From<rmcp::model::ResourceTemplate> for Resource {
    fn from(template: rmcp::model::ResourceTemplate) -> Self {
        Self {
            uri: template.uri_template.into(),
            name: shown(template.name),
            description: template.description.map(shown),
            media_type: template.mime_type.map(shown),
            size: None,
        }
    }
}

impl From<rmcp::model::Prompt> for Prompt {
    fn from(prompt: rmcp::model::Prompt) -> Self {
        let argument = |argument: rmcp::model::PromptArgument| PromptArgument {
            name: argument.name.into(),
            description: argument.description.map(shown),
            is_required: argument.required == Some(true),
        };
        Self {
            name: prompt.name.into(),
            description: prompt.description.map(shown),
            arguments: prompt.arguments.unwrap_or_default().into_iter().map(argument).collect(),
        }
    }
}

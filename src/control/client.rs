//! The command line's side of the admin socket: one command, one answer.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use super::admin::{ChildName, Command};
use super::explain;
use super::queue::Queue;
use super::status::Status;
use crate::limits::{ADMIN_ANSWER_BYTES_MAX, ADMIN_TIMEOUT};

/// What a command brought; its text is for the terminal and ends with a line end.
#[derive(Debug)]
pub struct Reply(String);

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a command brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers on the socket.
    #[error(
        "cannot reach antiphon on {}: {error}\n  is it running? --socket PATH or -c FILE names the socket; \
         it belongs to the user antiphon runs as", path.display()
    )]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// It answered, but not as expected.
    #[error("the answer on the admin socket is not understood: {0}")]
    Talk(String),
    /// It did not answer in time.
    #[error("antiphon did not answer on its admin socket within {} s", ADMIN_TIMEOUT.as_secs())]
    Slow,
    /// The command was refused; the text says why.
    #[error("{0}")]
    Refused(String),
}

/// Sends one command and waits for its answer. Blocks.
///
/// # Errors
/// Nobody answers, or the command was refused.
pub fn call(socket: &Path, command: &Command) -> Result<Reply, ClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| ClientError::Talk(error.to_string()))?;
    runtime.block_on(async {
        tokio::time::timeout(ADMIN_TIMEOUT, exchange(socket, command)).await.unwrap_or(Err(ClientError::Slow))
    })
}

async fn exchange(socket: &Path, command: &Command) -> Result<Reply, ClientError> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| ClientError::Unreachable { path: socket.to_owned(), error })?;
    let talk = |error: &dyn fmt::Display| ClientError::Talk(error.to_string());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| talk(&error))?;
    let (method, path) = match command {
        Command::Status | Command::ChildList => ("GET", "/status".to_owned()),
        Command::QueueList => ("GET", "/v1/queue".to_owned()),
        Command::Explain(question) => ("GET", question.path()),
        Command::Child(ChildName { group, name }, verb) => {
            let group = group.as_ref().map_or_else(String::new, |group| format!("{group}/"));
            let value = verb.value().map_or_else(String::new, |value| format!("?to={}", in_query(&value)));
            ("POST", format!("/v1/children/{group}{name}/{verb}{value}"))
        }
    };
    let request = Request::builder().method(method).uri(path).header("host", "localhost").body(Empty::<Bytes>::new());
    let request = request.map_err(|error| talk(&error))?;
    let answer = async move {
        let response = sender.send_request(request).await.map_err(|error| talk(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ADMIN_ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| talk(&error))?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    let (answer, _) = tokio::join!(answer, connection);
    let (status, text) = answer?;
    if status != StatusCode::OK {
        return Err(ClientError::Refused(text.trim_end().to_owned()));
    }
    show(command, text)
}

/// Whatever a terminal brought, as one value of a query (RFC 3986 3.4).
fn in_query(value: &str) -> String {
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-._~:[]".contains(&octet);
    let write = |octet: u8| if plain(octet) { char::from(octet).to_string() } else { format!("%{octet:02X}") };
    value.bytes().map(write).collect()
}

fn show(command: &Command, text: String) -> Result<Reply, ClientError> {
    let parsed = || serde_json::from_str::<Status>(&text).map_err(|error| ClientError::Talk(error.to_string()));
    Ok(Reply(match command {
        Command::Status => parsed()?.to_string(),
        Command::ChildList => {
            let groups: Vec<_> = parsed()?.groups.iter().map(ToString::to_string).collect();
            groups.join("\n")
        }
        Command::QueueList => {
            let queues = serde_json::from_str::<Vec<Queue>>(&text);
            let queues = queues.map_err(|error| ClientError::Talk(error.to_string()))?;
            queues.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        }
        Command::Explain(_) => explain::show(&text).map_err(|error| ClientError::Talk(error.to_string()))?,
        Command::Child(..) => text,
    }))
}

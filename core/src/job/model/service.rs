//! How a service is called: what a request is made of, and what happens when it fails.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{OnError, Text};

/// The built-in service.
pub const HTTP: &str = "http";

/// The longest answer that a stage can ask for, in bytes: about as long as a row may be.
pub const MAX_RESPONSE: u64 = 16 << 20;

/// What requests and answers of any service have in common. Absent options are `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// How long one try may take.
    pub timeout: Option<Duration>,
    /// Further tries after one that failed in a way that may pass.
    pub retries: Option<u32>,
    /// What happens to a row whose call failed; the job's unless set.
    pub on_error: Option<OnError>,
    /// Rows that an instance of an async form has in hand at once; of the batched form: requests.
    pub concurrency: Option<u32>,
    /// Results of an async form leave in the order of the rows.
    pub preserve_order: Option<bool>,
    /// Most rows of a request of the batched form.
    pub batch: Option<u32>,
    /// Bytes of a longer answer are not taken: the call has failed.
    pub max_response: Option<u64>,
}

impl Calls {
    /// How long one try may take.
    pub fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(Duration::from_secs(5))
    }

    /// Further tries after the first.
    pub fn retries(&self) -> u32 {
        self.retries.unwrap_or(3)
    }

    /// Requests that an instance has under way at once.
    pub fn concurrency(&self, asynchronous: bool) -> usize {
        if asynchronous { self.concurrency.unwrap_or(64) as usize } else { 1 }
    }

    /// Results leave in the order of the rows.
    pub fn preserve_order(&self) -> bool {
        self.preserve_order.unwrap_or(true)
    }

    /// Most rows of one request.
    pub fn batch(&self, batched: bool) -> usize {
        if batched { self.batch.unwrap_or(128) as usize } else { 1 }
    }

    /// The longest answer in bytes.
    pub fn max_response(&self) -> u64 {
        self.max_response.unwrap_or(1 << 20)
    }
}

/// A request of the service `http`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HttpCall {
    /// An expression that gives the address.
    pub url: Option<Text>,
    /// `GET` unless set.
    pub method: HttpMethod,
    /// An expression that gives what is sent.
    pub body: Option<Text>,
    /// Names, and expressions or `env:NAME`.
    pub headers: Vec<(Text, Text)>,
}

/// `method`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    /// Asks for something.
    #[default]
    Get,
    /// Sends a body.
    Post,
    /// Sends a body to be kept under the address.
    Put,
    /// Sends a change.
    Patch,
    /// Removes what is there.
    Delete,
}

impl HttpMethod {
    /// All, as a job file calls them.
    pub const ALL: [(&'static str, Self); 5] = [
        ("GET", Self::Get),
        ("POST", Self::Post),
        ("PUT", Self::Put),
        ("PATCH", Self::Patch),
        ("DELETE", Self::Delete),
    ];

    /// A request that comes twice does what one does (RFC 9110, section 9.2.2).
    pub fn is_idempotent(self) -> bool {
        matches!(self, Self::Get | Self::Put | Self::Delete)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// The variable of the agent's environment that a header's value is read from, if it is one.
pub fn environment_variable(value: &str) -> Option<&str> {
    value.strip_prefix("env:").filter(|name| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// What to do instead of `http://user:password@host/`, after a sentence that names the fault.
pub const USER_IN_URL: &str = "give them in a header: headers = { Authorization = \"env:NAME\" }, where the variable of the agent's environment holds `Basic` and the encoded text";

//! Every way in which a request ends without an ordinary answer, and what becomes of it: whose side it is on, which
//! status, which stable code, what the reader should do. The one place that turns an error into a status.
//!
//! Not the errors of configuration or of the command line (these stop the program and have their own types), and not
//! the answer's octets ([`crate::http::reply`] writes those).

use std::fmt;

/// Who has to do something about a [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client sent something that we do not take. The same request will fail again.
    Client,
    /// A child did not answer, or not in HTTP.
    Child,
    /// The operator's configuration or command decided so.
    Operator,
    /// We ourselves cannot do it now.
    Us,
}

/// One row of the table below.
struct Row {
    side: Side,
    status: u16,
    code: &'static str,
    proxy_status: &'static str,
    after: After,
    text: &'static str,
}

/// What happens to the client's connection after the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// The octets that follow cannot be trusted to be a request, or the client was given up.
    Close,
    /// The head was sound: the connection can go on, once the request's body has been read.
    Keep,
}

/// Builds the enum and its table from one row a variant, so that no variant can lack a status or a text.
macro_rules! faults {
    ($($variant:ident $(($example:literal))? $side:ident $status:literal $code:literal $proxy:literal $after:ident $text:literal;)*) => {
        /// A way in which a client, a child, the operator or we ourselves end a request without an ordinary answer.
        ///
        /// A variant's text is what the client is told. Where a variant carries a text, that one is told instead.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $(#[doc = $text] $variant $((why!($example)))?,)*
        }

        impl Fault {
            /// One of each, for tables of documentation, metrics and tests. Carried texts are examples.
            pub const ALL: &'static [Self] = &[$(Self::$variant $(($example))?,)*];

            const fn row(self) -> Row {
                match self {
                    $(Self::$variant { .. } => Row {
                        side: Side::$side,
                        status: $status,
                        code: $code,
                        proxy_status: $proxy,
                        after: After::$after,
                        text: $text,
                    },)*
                }
            }
        }
    };
}

/// The type of a carried text.
macro_rules! why {
    ($example:literal) => {
        &'static str
    };
}

// Columns: whose side, status, code, error type of RFC 9209, the connection afterwards, text.
faults! {
    // === the request line ===
    LineEndBare Client 400 "line_end_bare" "http_request_error" Close
        "A CR or LF stands alone in the head. Lines end in CR LF, and neither octet stands anywhere else (RFC 9112 2.2).";
    EmptyLinesBefore Client 400 "empty_lines_before" "http_request_error" Close
        "Empty lines stand before the request line. Two are passed over (RFC 9112 2.2), not more.";
    RequestLineInvalid Client 400 "request_line_invalid" "http_request_error" Close
        "The request line is not `method SP target SP HTTP/1.1` with single spaces (RFC 9112 3). HTTP/0.9 is not spoken.";
    MethodInvalid Client 400 "method_invalid" "http_request_error" Close
        "The method is not a token (RFC 9110 9.1).";
    MethodConnect Client 405 "method_connect" "http_request_denied" Close
        "CONNECT is refused: this is a gateway, it opens no tunnels to elsewhere (RFC 9110 9.3.6).";
    MethodTrace Client 405 "method_trace" "http_request_denied" Close
        "TRACE is refused: it would show fields that this gateway adds (RFC 9110 9.3.8).";
    TargetInvalid Client 400 "target_invalid" "http_request_error" Close
        "The target holds an octet that no URI may hold, or is in none of the forms of RFC 9112 3.2. Percent-encode it.";
    TargetFragment Client 400 "target_fragment" "http_request_error" Close
        "The target holds a `#`. A fragment is not sent (RFC 9112 3.2); percent-encode the sign if it is data.";
    TargetTooLong Client 414 "target_too_long" "http_request_error" Close
        "The target is longer than is accepted here. Send long parameters in a POST body.";
    VersionInvalid Client 400 "version_invalid" "http_request_error" Close
        "The version is not `HTTP/` with one digit, a dot and one digit (RFC 9112 2.3).";
    VersionUnsupported Client 505 "version_unsupported" "http_protocol_error" Close
        "Only HTTP/1.0 and HTTP/1.1 are spoken here.";

    // === fields ===
    FieldNameInvalid Client 400 "field_name_invalid" "http_request_error" Close
        "A field line does not begin with a name that is a token and a colon (RFC 9112 5).";
    FieldSpaceBeforeColon Client 400 "field_space_before_colon" "http_request_error" Close
        "White space stands between a field's name and its colon (RFC 9112 5.1).";
    FieldFolded Client 400 "field_folded" "http_request_error" Close
        "A field line begins with white space. Folded fields are refused (RFC 9112 5.2).";
    FieldValueInvalid Client 400 "field_value_invalid" "http_request_error" Close
        "A field's value holds NUL or another control character (RFC 9110 5.5).";
    HeadTooLarge Client 431 "head_too_large" "http_request_error" Close
        "The request's head is larger than is accepted here (RFC 6585 5).";
    TooManyFields Client 431 "too_many_fields" "http_request_error" Close
        "The request has more fields than are accepted here (RFC 6585 5).";
    HostMissing Client 400 "host_missing" "http_request_error" Close
        "HTTP/1.1 requires a Host field (RFC 9112 3.2).";
    HostRepeated Client 400 "host_repeated" "http_request_error" Close
        "There are several Host fields (RFC 9112 3.2).";
    HostInvalid Client 400 "host_invalid" "http_request_error" Close
        "The host is not `name`, `name:port` or an address in its URI form (RFC 9110 7.2).";
    HostDiffers Client 400 "host_differs" "http_request_error" Close
        "The Host field and the target name different hosts (RFC 9112 3.2.2).";
    ConnectionInvalid Client 400 "connection_invalid" "http_request_error" Close
        "The Connection field is not a list of tokens (RFC 9110 7.6.1).";
    ConnectionNamesFraming Client 400 "connection_names_framing" "http_request_error" Close
        "The Connection field names Host, Content-Length or Transfer-Encoding. These are not for one hop (RFC 9110 7.6.1).";
    ExpectationUnknown Client 417 "expectation_unknown" "http_request_error" Close
        "Only `100-continue` can be expected (RFC 9110 10.1.1).";

    // === framing and bodies ===
    ContentLengthInvalid Client 400 "content_length_invalid" "http_request_error" Close
        "Content-Length is not a decimal number of at most 64 bits (RFC 9110 8.6).";
    ContentLengthTwice Client 400 "content_length_twice" "http_request_error" Close
        "There are several Content-Length values (RFC 9112 6.3).";
    ContentLengthAndTransferEncoding Client 400 "content_length_and_transfer_encoding" "http_request_error" Close
        "Content-Length and Transfer-Encoding stand together (RFC 9112 6.1).";
    TransferEncodingInvalid Client 400 "transfer_encoding_invalid" "http_request_error" Close
        "Transfer-Encoding is malformed, repeated, or does not end in `chunked` (RFC 9112 6.1).";
    TransferEncodingUnknown Client 501 "transfer_encoding_unknown" "http_request_error" Close
        "The only transfer coding accepted here is `chunked` (RFC 9112 6.1).";
    TransferEncodingInHttp10 Client 400 "transfer_encoding_in_http_1_0" "http_request_error" Close
        "HTTP/1.0 has no transfer codings (RFC 9112 6.1).";
    ChunkSizeInvalid Client 400 "chunk_size_invalid" "http_request_error" Close
        "A chunk does not begin with its size in hexadecimal digits (RFC 9112 7.1).";
    ChunkSizeTooLarge Client 400 "chunk_size_too_large" "http_request_error" Close
        "A chunk's size has more than sixteen digits (RFC 9112 7.1).";
    ChunkExtensionInvalid Client 400 "chunk_extension_invalid" "http_request_error" Close
        "A chunk extension is malformed (RFC 9112 7.1.1).";
    ChunkLineEndInvalid Client 400 "chunk_line_end_invalid" "http_request_error" Close
        "A chunk's size line or data does not end in CR LF (RFC 9112 7.1).";
    ChunkOverheadTooLarge Client 413 "chunk_overhead_too_large" "http_request_error" Close
        "The chunk extensions and trailers of the body are larger than is accepted here.";
    TrailerInvalid Client 400 "trailer_invalid" "http_request_error" Close
        "The trailer section is malformed, or holds a field that frames or routes (RFC 9110 6.5.1).";
    BodyTooLarge Client 413 "body_too_large" "http_request_error" Close
        "The request's body is larger than is accepted here (RFC 9110 15.5.14).";
    BodyCutShort Client 400 "body_cut_short" "http_request_error" Close
        "The request ended before its body did (RFC 9112 8). Nothing of it was carried out.";
    HeadTimeout Client 408 "head_timeout" "http_request_error" Close
        "The request's head did not arrive in time.";
    BodyTimeout Client 408 "body_timeout" "http_request_error" Close
        "The request's body did not arrive in time. Nothing of it was carried out.";
    ClientGone Client 499 "client_gone" "connection_terminated" Close
        "The client closed the connection before its answer. Nobody reads this; it is counted.";

    // === routing and actions ===
    OwnUnknown Client 404 "own_unknown" "http_request_denied" Keep
        "What is below `/.antiphon/` is antiphon's own, and nothing there has this path. There is `/.antiphon/v1/changes/EPOCH:NUMBER`.";
    OwnMethod Client 405 "own_method" "http_request_denied" Keep
        "What is below `/.antiphon/` can be read by GET and HEAD only.";
    ChangeUnknown("no change has this sequence") Client 404 "change_unknown" "http_request_denied" Keep
        "No change of this group has this sequence.";
    MinSequenceInvalid Client 400 "min_sequence_invalid" "http_request_error" Keep
        "Antiphon-Min-Sequence is not `EPOCH:NUMBER`, once, as the Antiphon-Sequence of a reply says it.";
    MinSequenceUnknown("no change has this sequence yet") Client 412 "min_sequence_unknown" "http_request_denied" Keep
        "No child can ever have applied the change that Antiphon-Min-Sequence names.";
    NoRoute Client 404 "no_route" "destination_not_found" Keep
        "No route of this listener takes the path.";
    ActionMissing Client 400 "action_missing" "http_request_denied" Keep
        "The request names no action.";
    ActionAmbiguous("two actions are named") Client 400 "action_ambiguous" "http_request_denied" Keep
        "The request can be read as more than one action.";
    ActionEncrypted Client 400 "action_encrypted" "http_request_denied" Keep
        "The action is encrypted, so that it cannot be told whether it changes anything. Send it to the child itself.";
    TokenInvalid Client 400 "token_invalid" "http_request_denied" Keep
        "The Token is not base64 of `host:port:queue:number`, so that it cannot be told which child issued it. Send it as the action's answer gave it, percent-encoded in a URL.";
    TokenMissing Client 400 "token_missing" "http_request_denied" Keep
        "This QueueAction changes a queue of one child. Add the Token that says which, or send it to that child itself.";
    TokenUnknown Operator 404 "token_unknown" "destination_not_found" Keep
        "The token was issued by a server that is none of the children here.";
    ActionRefused Operator 403 "action_refused" "http_request_denied" Keep
        "A rule of the configuration refuses this action.";
    LockRefused Client 501 "lock_refused" "http_request_denied" Keep
        "LOCK and UNLOCK are not carried out: each child would give out a token of its own, and no other would know it (RFC 4918 9.10).";
    ConditionalChange Client 412 "conditional_change" "http_request_denied" Keep
        "The change depends on an entity tag, a date or a lock token, which differ between children: some would carry it out and others not (RFC 9110 13). Send it without the condition.";
    ServerTime Client 422 "server_time" "http_request_denied" Keep
        "Each child would put the time of its own clock into this. Give every point a timestamp, and write out the time instead of now().";

    // === children ===
    NoChild Child 503 "no_child" "destination_unavailable" Keep
        "No child of the group is up. `status` shows why.";
    NoCurrentChild Child 503 "no_current_child" "destination_unavailable" Keep
        "No child that is up has applied every change that this read must see yet.";
    IssuerAway Child 503 "issuer_away" "destination_unavailable" Keep
        "The child that issued this token takes no requests now, and no other child knows the token.";
    ChildConnect Child 502 "child_connect" "connection_refused" Keep
        "The child took no connection.";
    ChildConnectTimeout Child 504 "child_connect_timeout" "connection_timeout" Keep
        "The child did not take the connection in time.";
    ChildClosed Child 502 "child_closed" "connection_terminated" Keep
        "The child closed the connection before its answer.";
    ChildHeadTimeout Child 504 "child_head_timeout" "http_response_timeout" Keep
        "The child did not begin its answer in time.";
    ChildHeadInvalid("the status line is malformed") Child 502 "child_head_invalid" "http_protocol_error" Keep
        "The head of the child's answer is not valid HTTP/1.1.";
    ChildHeadTooLarge Child 502 "child_head_too_large" "http_response_header_section_size" Keep
        "The head of the child's answer is larger than is accepted here.";
    ChildInterimsTooMany Child 502 "child_interims_too_many" "http_protocol_error" Keep
        "The child sent interim answers without end.";
    ChildUnaskedUpgrade Child 502 "child_unasked_upgrade" "http_upgrade_failed" Keep
        "The child switched protocols without having been asked to (RFC 9110 7.8).";
    ChildFraming("Content-Length and Transfer-Encoding stand together") Child 502 "child_framing" "http_protocol_error" Keep
        "The framing of the child's answer is not valid HTTP/1.1.";
    ChildBodyTimeout Child 504 "child_body_timeout" "connection_read_timeout" Close
        "The body of the child's answer stopped arriving.";
    ChildBodyCutShort Child 502 "child_body_cut_short" "http_response_incomplete" Close
        "The child closed the connection within its answer.";

    // === changes ===
    NotQueueable("every child must carry out this action at the same time, and one is away") Child 503 "not_queueable" "destination_unavailable" Keep
        "This change cannot wait for a child that is away. Nothing was carried out.";
    Partial Child 502 "partial" "http_response_incomplete" Keep
        "Every child was sent this action at the same time, and not all answered alike: see `children`. Those unlike the others serve no reads. Do not send it again.";
    ChangePending Us 504 "pending" "http_response_timeout" Keep
        "The change has its place in the order and will be carried out; not as many children as `ack` asks for have carried it out in time. Do not send it again.";
    OutcomeUnknown Us 503 "outcome_unknown" "proxy_internal_response" Keep
        "It is not known whether a child carried out an earlier change, so no further one is taken. See `status`.";
    JournalFull Us 503 "journal_full" "connection_limit_reached" Keep
        "What is kept for children that are away has reached its limit: see `status`. Nothing of this change was carried out.";
    JournalFailed Us 503 "journal_failed" "proxy_internal_error" Keep
        "The journal cannot be written, so no change is taken until a restart. A change that was under way may be carried out then: ask before sending it again.";
    ChangeRejectedMemory Us 503 "change_memory" "connection_limit_reached" Keep
        "The bodies of changes under way fill the memory set aside for them. Nothing of this change was carried out.";

    // === we ourselves ===
    Overloaded Us 503 "overloaded" "connection_limit_reached" Keep
        "More work is waiting than is accepted here. Nothing of this request was carried out.";
    Internal Us 500 "internal" "proxy_internal_error" Close
        "An error of ours. Please report it with the lines of the log around it.";
}

impl Fault {
    /// Whose side it is on.
    #[must_use]
    pub const fn side(self) -> Side {
        self.row().side
    }

    /// The status of the answer. 499 ([`Fault::ClientGone`]) is never sent.
    #[must_use]
    pub const fn status(self) -> u16 {
        self.row().status
    }

    /// A stable name in `snake_case`, for clients' code, metrics and lines of diagnosis.
    #[must_use]
    pub const fn code(self) -> &'static str {
        self.row().code
    }

    /// What is wrong and, where it is not plain, what to do; a sentence or two.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::ActionAmbiguous(why)
            | Self::ChildHeadInvalid(why)
            | Self::ChildFraming(why)
            | Self::ChangeUnknown(why)
            | Self::MinSequenceUnknown(why)
            | Self::NotQueueable(why) => why,
            _ => self.row().text,
        }
    }

    /// The error type of a `Proxy-Status` field (RFC 9209 2.3).
    #[must_use]
    pub const fn proxy_status(self) -> &'static str {
        self.row().proxy_status
    }

    /// After how many seconds the same request may well succeed; `None` where time alone does not help.
    #[must_use]
    pub const fn retry_after_s(self) -> Option<u32> {
        match self.status() {
            503 => Some(1),
            _ => None,
        }
    }

    /// Whether the client's connection closes after the answer in any case. Where not, it must still close if the
    /// request's body has not been read to its end.
    #[must_use]
    pub const fn closes(self) -> bool {
        matches!(self.row().after, After::Close)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.text())
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_unique_and_snake_case() {
        let codes: HashSet<_> = Fault::ALL.iter().map(|fault| fault.code()).collect();
        assert_eq!(codes.len(), Fault::ALL.len());
        assert!(
            codes.iter().all(|code| code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'))
        );
    }

    #[test]
    fn the_status_agrees_with_the_side() {
        for fault in Fault::ALL {
            match fault.side() {
                Side::Client => assert!(matches!(fault.status(), 400..=499 | 501 | 505), "{fault:?}"),
                Side::Child => assert!(matches!(fault.status(), 502..=504), "{fault:?}"),
                Side::Us => assert!(matches!(fault.status(), 500 | 503 | 504), "{fault:?}"),
                Side::Operator => {}
            }
            assert!(!fault.text().is_empty());
        }
    }

    #[test]
    fn a_carried_text_is_told() {
        assert_eq!(Fault::ChildFraming("why").text(), "why");
        assert_eq!(Fault::ChildFraming("why").to_string(), "child_framing: why");
    }
}

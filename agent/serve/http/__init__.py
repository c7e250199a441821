"""The HTTP API: a request goes in; a JSON answer, a stream or an RFC 9457 problem comes out."""

/** One wrong field of a message or request. */
export interface FieldIssue {
  path: string;
  message: string;
}

interface ErrorSpec {
  status: number;
  /** True when a later retry may succeed and is safe. */
  retryable: boolean;
  message: (details: never) => string;
}

/** Every error a caller can see. `docs/errors.md` lists the same codes; a test compares them. */
export const ERRORS = {
  // --- deployments ---
  ERR_INVALID_TYPE: {
    status: 400,
    retryable: false,
    message: (d: { type: string; deployment_id?: string }) =>
      `deployment type ${JSON.stringify(d.type)} is neither "daemon" nor "deployment"`,
  },
  // The code of an event, and of a rollback to a specification that cannot be run.
  ERR_INVALID_ROW: {
    status: 409,
    retryable: false,
    message: (d: { what: string; reason: string; issues?: FieldIssue[] }) =>
      `${d.what} cannot be read: ${d.reason}`,
  },
  ERR_DAEMON_ADDRESS_SET: {
    status: 400,
    retryable: false,
    message: (d: { address: string; deployment_id?: string }) =>
      `a daemon has no address, but this one has ${JSON.stringify(d.address)}`,
  },
  // Not retryable: its generations are over. The next pass uses new ones.
  ERR_CLAIM_CONFLICT: {
    status: 409,
    retryable: false,
    message: (d: { candidates: number }) =>
      `none of the ${d.candidates} candidates was still free; another node was faster`,
  },
  ERR_POLICY_DISABLED: {
    status: 409,
    retryable: false,
    message: (d: { address: string }) => `node ${d.address} has claim policy "none"`,
  },
  // The code of an event, not of an answer. Not retryable: the executor restarts the daemon, a request does not.
  ERR_DAEMON_MISSING: {
    status: 503,
    retryable: false,
    message: (d: { deployment_id: string; address: string }) =>
      `daemon ${d.deployment_id} is enabled but not running on node ${d.address}`,
  },

  // --- secrets ---
  SECRET_KEY_MISSING: {
    status: 503,
    retryable: false,
    message: (d: { instance_id?: string }) =>
      `instance ${d.instance_id ?? ""} has no secret_key_file, so it cannot encrypt or read secrets`,
  },
  // Not retryable: its value has to be set again, or the key put back.
  SECRET_UNREADABLE: {
    status: 409,
    retryable: false,
    message: (d: { name: string; reason: string }) =>
      `secret ${d.name} cannot be decrypted: ${d.reason}`,
  },

  // --- the caller's request ---
  INVALID_MESSAGE: {
    status: 400,
    retryable: false,
    message: (d: { reason: string; issues?: FieldIssue[] }) => `invalid message: ${d.reason}`,
  },
  INVALID_REQUEST: {
    status: 400,
    retryable: false,
    message: (d: { reason: string; issues?: FieldIssue[] }) => `invalid request: ${d.reason}`,
  },
  UNSUPPORTED_VERSION: {
    status: 400,
    retryable: false,
    message: (d: { offered: number; supported: number }) =>
      `protocol version ${d.offered} is not supported; this server supports ${d.supported}`,
  },
  UNAUTHENTICATED: {
    status: 401,
    retryable: false,
    message: (d: { reason: string }) => d.reason,
  },
  // The node that used it gets its answer again; this is another node, or another secret.
  JOIN_TOKEN_USED: {
    status: 409,
    retryable: false,
    message: (d: { address: string }) => `this join token has enrolled node ${d.address} already`,
  },
  FORBIDDEN: {
    status: 403,
    retryable: false,
    message: (d: { reason: string }) => d.reason,
  },
  NOT_FOUND: {
    status: 404,
    retryable: false,
    message: (d: { what: string; id: string }) => `${d.what} ${d.id} does not exist`,
  },
  CONFLICT: {
    status: 409,
    retryable: false,
    message: (d: { reason: string }) => d.reason,
  },
  CONFIRMATION_REQUIRED: {
    status: 409,
    retryable: false,
    message: (d: { reason: string }) => `${d.reason}; send it again with confirm: true`,
  },
  PAYLOAD_TOO_LARGE: {
    status: 413,
    retryable: false,
    message: (d: { limit_bytes: number }) => `larger than the limit of ${d.limit_bytes} bytes`,
  },

  // --- ownership: another owner has it ---
  REQUEST_ID_REUSED: {
    status: 409,
    retryable: false,
    message: (d: { request_id: string }) =>
      `request id ${d.request_id} was already used for another request`,
  },
  STALE_ATTEMPT: {
    status: 409,
    retryable: false,
    message: (d: { job_id: string; attempt_id: number }) =>
      `attempt ${d.attempt_id} of job ${d.job_id} has been superseded`,
  },
  NODE_ADDRESS_IN_USE: {
    status: 409,
    retryable: false,
    message: (d: { address: string }) =>
      `address ${d.address} is in use by another process that still answers`,
  },
  LEASE_HELD: {
    status: 409,
    retryable: true,
    message: (d: { signer: string; owner_node: string }) =>
      `signer ${d.signer} is held by ${d.owner_node}`,
  },
  FENCED: {
    status: 409,
    retryable: false,
    message: (d: { resource: string; fencing_token: number }) =>
      `term ${d.fencing_token} of ${d.resource} is over; it has another owner`,
  },
  HOLD_MISMATCH: {
    status: 409,
    retryable: false,
    message: (d: { signer: string; nonce: number }) =>
      `nonce ${d.nonce} of ${d.signer} belongs to another hold`,
  },

  // --- no room now ---
  RATE_LIMITED: {
    status: 429,
    retryable: true,
    message: (d: { retry_after_ms: number }) => `too many requests; wait ${d.retry_after_ms} ms`,
  },
  INBOX_FULL: {
    status: 429,
    retryable: true,
    message: (d: { instance_id: string }) => `the inbox of instance ${d.instance_id} is full`,
  },
  QUEUE_FULL: {
    status: 429,
    retryable: true,
    message: (d: { queue: string; limit: number; unit?: "bytes"; retry_after_ms?: number }) =>
      `${d.queue} is full (limit ${d.unit === "bytes" ? `${d.limit / 2 ** 20} MiB` : d.limit})`,
  },
  NO_AVAILABLE_NODE: {
    status: 503,
    retryable: true,
    message: (d: { pool: string; excluded?: Record<string, number> }) =>
      `no node of pool ${d.pool} could take the job in time`,
  },
  DEPENDENCY_DOWN: {
    status: 503,
    retryable: true,
    message: (d: { dependency: string; reason?: string }) =>
      d.reason ? `${d.dependency} is down (${d.reason})` : `${d.dependency} is down`,
  },

  // --- how a job ended ---
  // Retryable: a node without the model is skipped for a minute only, and others may have it.
  MODEL_NOT_AVAILABLE: {
    status: 503,
    retryable: true,
    message: (d: { service: string }) => `service ${d.service} is not available`,
  },
  JOB_CANCELLED: {
    status: 409,
    retryable: false,
    message: (d: { job_id: string }) => `job ${d.job_id} was cancelled`,
  },
  ATTEMPTS_EXHAUSTED: {
    status: 502,
    retryable: false,
    message: (d: { job_id: string; attempts: number }) =>
      `job ${d.job_id} failed in each of its ${d.attempts} attempts`,
  },
  // Replaces a result that was dropped; a retry does not restore it.
  RESULT_EVICTED: {
    status: 410,
    retryable: false,
    message: (d: { job_id: string; outcome: string }) =>
      `job ${d.job_id} ended as ${d.outcome}; its result was dropped to make room`,
  },
  // Not retryable: the work may have been done, and only the caller knows whether a second job is safe.
  JOB_TIMEOUT: {
    status: 504,
    retryable: false,
    message: (d: { job_id: string }) => `job ${d.job_id} did not end in time`,
  },

  // `reason` reaches the caller, so it never has the text of an unexpected exception.
  INTERNAL: {
    status: 500,
    retryable: false,
    message: (d: { reason?: string }) => d.reason ?? "internal error",
  },
} as const satisfies Record<string, ErrorSpec>;

export type ErrorCode = keyof typeof ERRORS;
export type ErrorDetails<C extends ErrorCode> = Parameters<(typeof ERRORS)[C]["message"]>[0];

export interface TenureErrorOptions extends ErrorOptions {
  /** The fields of an error of another process, which override the table of this version. */
  received?: { code: string; message: string; retryable: boolean; status?: number };
}

export class TenureError<C extends ErrorCode = ErrorCode> extends Error {
  override readonly name = "TenureError";
  readonly code: C;
  readonly details: ErrorDetails<C>;
  /** The code on the wire. Differs from `code` only when a newer peer sent an unknown one. */
  readonly wireCode: string;
  readonly status: number;
  readonly retryable: boolean;

  constructor(
    code: C,
    details: ErrorDetails<C>,
    { received, ...options }: TenureErrorOptions = {},
  ) {
    const spec = ERRORS[code];
    super(received?.message ?? (spec.message as (d: ErrorDetails<C>) => string)(details), options);
    this.code = code;
    this.details = details;
    this.wireCode = received?.code ?? code;
    this.status = received?.status ?? spec.status;
    this.retryable = received?.retryable ?? spec.retryable;
  }
}

export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERRORS, code);
}

/** Narrows to one code, and with it to the details of that code. */
export function isTenureError<C extends ErrorCode>(
  error: unknown,
  code: C,
): error is TenureError<C> {
  return error instanceof TenureError && error.code === code;
}

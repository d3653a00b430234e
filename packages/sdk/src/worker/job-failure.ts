import { type NodeJobError, Service, TenureError } from "@tenure/protocol";

/** An error to throw from `run` when this node lacks the service. This job and the next ones go to other nodes. */
export function modelNotAvailable(service: string): TenureError<"MODEL_NOT_AVAILABLE"> {
  return new TenureError("MODEL_NOT_AVAILABLE", { service });
}

const CODE_LENGTH_MAX = 128;
const MESSAGE_LENGTH_MAX = 4_096;

/**
 * Converts an error that `run` threw. Its own `code` and `retryable` are kept; without them the job fails with
 * INTERNAL and is not retried.
 */
export function failureOf(thrown: unknown): NodeJobError {
  const error = toFields(thrown);
  const retryable = typeof error.retryable === "boolean" ? error.retryable : undefined;
  const service = Service.safeParse(error.service).data;
  return {
    code: (typeof error.code === "string" && clean(error.code, CODE_LENGTH_MAX)) || "INTERNAL",
    message: clean(String(error.message ?? thrown), MESSAGE_LENGTH_MAX),
    ...(retryable !== undefined && { retryable }),
    ...(service !== undefined && { service }),
  };
}

function toFields(thrown: unknown): Partial<Record<keyof NodeJobError, unknown>> {
  if (thrown instanceof TenureError) {
    const { wireCode: code, message, retryable, details } = thrown;
    return { code, message, retryable, service: (details as { service?: unknown }).service };
  }
  return typeof thrown === "object" && thrown !== null ? thrown : {};
}

/** The server rejects a frame with NUL or half a surrogate pair, and would never acknowledge it. */
function clean(text: string, lengthMax: number): string {
  return text.slice(0, lengthMax).replace(/\0|\p{Surrogate}/gu, "\ufffd");
}

/** For the jobs of a worker that closes: they go to another node, and this does not count as an attempt. */
export const DRAINING: NodeJobError = {
  code: "NODE_DRAINING",
  message: "the worker is leaving",
  retryable: true,
};

export const NO_SLOT: NodeJobError = {
  code: "QUEUE_FULL",
  message: "every slot is used by a cancelled run that has not ended",
  retryable: true,
};

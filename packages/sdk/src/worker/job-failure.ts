import { type NodeJobError, Service, TenureError } from "@tenure/protocol";

/** To throw from `run`: this node lacks the service now. The job goes to another one, and so do the next. */
export function modelNotAvailable(service: string): TenureError<"MODEL_NOT_AVAILABLE"> {
  return new TenureError("MODEL_NOT_AVAILABLE", { service });
}

const CODE_LENGTH_MAX = 128;
const MESSAGE_LENGTH_MAX = 4_096;

/**
 * What `run` threw, as the server takes it. An error with a `code` of its own keeps it, and says by `retryable`
 * whether another node may do better; any other is INTERNAL and is not tried again.
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

/** The server takes no NUL and no half of a character, and what it cannot read it would not answer. */
function clean(text: string, lengthMax: number): string {
  return text.slice(0, lengthMax).replace(/\0|\p{Surrogate}/gu, "\ufffd");
}

/** Of a worker that leaves: what it has not done goes to another one, and counts as no attempt. */
export const DRAINING: NodeJobError = {
  code: "NODE_DRAINING",
  message: "the worker is leaving",
  retryable: true,
};

export const NO_PLACE: NodeJobError = {
  code: "QUEUE_FULL",
  message: "the worker still runs what was cancelled before",
  retryable: true,
};

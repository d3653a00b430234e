import { CLOSE_CODES, type CloseCode, type ErrorCode, TenureError } from "@tenure/protocol";

/** The close code for a rejected registration. When a store is down the client should retry, so it gets `TOO_SLOW`. */
export function closeCodeOf(error: unknown): CloseCode {
  return (error instanceof TenureError && CODES[error.code as ErrorCode]) || CLOSE_CODES.TOO_SLOW;
}

const CODES: Partial<Record<ErrorCode, CloseCode>> = {
  NODE_ADDRESS_IN_USE: CLOSE_CODES.REPLACED,
  FORBIDDEN: CLOSE_CODES.WRONG_ROLE,
  UNAUTHENTICATED: CLOSE_CODES.UNAUTHENTICATED,
  UNSUPPORTED_VERSION: CLOSE_CODES.BAD_FRAMES,
};

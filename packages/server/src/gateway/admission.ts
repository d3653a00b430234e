import {
  CLOSE_CODES,
  type CloseCode,
  type ErrorCode,
  type Role,
  TenureError,
} from "@tenure/protocol";

/** The token of a connection. */
export interface SocketPrincipal {
  /** The name of the token. */
  name: string;
  role: Role;
  tenant: string;
}

export interface NodePrincipal extends SocketPrincipal {
  addresses?: string[] | undefined;
  pools?: string[] | undefined;
  node_unit?: boolean | undefined;
  capacity_max?: number | undefined;
  labels?: Record<string, string> | undefined;
  tenants?: readonly string[] | undefined;
  nodes_max?: number | undefined;
}

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

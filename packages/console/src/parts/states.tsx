import type { ComponentChildren } from "preact";
import type { ApiError } from "../api.ts";
import { Text } from "./text.tsx";

/** Empty state: explains what appears here, and how. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="state">
      <p class="state-title">{title}</p>
      {children && <div class="state-text">{children}</div>}
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <div class="state" role="status">
      <span class="spinner" aria-hidden="true" />
      <p class="state-text">Loading {what} …</p>
    </div>
  );
}

export function Failure({ error, retry }: { error: ApiError; retry?: (() => void) | undefined }) {
  return (
    <div class="state state-bad" role="alert">
      <p class="state-title">{headline(error)}</p>
      <p class="state-text">
        <Text>{error.message}</Text> <span class="mono quiet">{error.code}</span>
      </p>
      {retry && (
        <button type="button" class="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

function headline({ status }: ApiError): string {
  if (status === 0) return "The server cannot be reached";
  if (status === 404) return "Not found";
  if (status === 403) return "Not allowed";
  return status === 503 ? "A store is down" : "Request failed";
}

/** Warning above data that could not be refreshed. */
export function Stale({ error }: { error: ApiError | undefined }) {
  if (!error) return null;
  return (
    <p class="stale" role="status">
      Refresh failed (<Text>{error.message}</Text>). The data below is older.
    </p>
  );
}

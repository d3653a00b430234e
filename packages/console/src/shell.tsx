import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { now } from "./clock.ts";
import { me, signOut, stats } from "./data.ts";
import { connection } from "./live.ts";
import { relative } from "./model/time.ts";
import { isTyping } from "./parts/filter.tsx";
import { Icon, type IconName } from "./parts/icons.tsx";
import { Text } from "./parts/text.tsx";
import { showToast } from "./parts/toast.tsx";
import { asApiError } from "./resource.ts";
import { currentLocation, go } from "./router.ts";
import { CHOICES, chooseTheme, themeChoice } from "./theme.ts";

interface Entry {
  href: string;
  label: string;
  icon: IconName;
  /** Shortcut after `g`. */
  key: string;
  count?: number | undefined;
}

function entries(): Entry[] {
  const { nodes, deployments } = stats.state.value.value ?? {};
  return [
    { href: "/", label: "Overview", icon: "overview", key: "o" },
    { href: "/nodes", label: "Nodes", icon: "nodes", key: "n", count: nodes?.online },
    {
      href: "/deployments",
      label: "Deployments",
      icon: "deployments",
      key: "d",
      count: deployments?.enabled,
    },
    { href: "/jobs", label: "Jobs", icon: "jobs", key: "j" },
    { href: "/sessions", label: "Turns and sessions", icon: "sessions", key: "t" },
    { href: "/signers", label: "Signers", icon: "signers", key: "s" },
    { href: "/cluster", label: "Cluster", icon: "cluster", key: "c" },
    { href: "/events", label: "Events", icon: "events", key: "e" },
  ];
}

export function Shell({ children }: { children: ComponentChildren }) {
  const [isOpen, setOpen] = useState(false);
  const { path } = currentLocation.value;
  stats.use();
  useEffect(() => setOpen(false), [path]);
  useLayoutEffect(() => listenForShortcuts(), []);
  return (
    <div class="shell">
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        Skip to content
      </button>
      <aside class={isOpen ? "side side-open" : "side"}>
        <div class="brand-row">
          <a class="brand" href="/" aria-label="Tenure, overview">
            <img src="/icon.svg" alt="" width="24" height="24" />
            <span>Tenure</span>
          </a>
          <span class="top-live">
            <Live />
          </span>
          <button
            type="button"
            class="icon-button menu-button"
            aria-expanded={isOpen}
            aria-controls="menu"
            aria-label="Menu"
            onClick={() => setOpen(!isOpen)}
          >
            <Icon name={isOpen ? "close" : "menu"} />
          </button>
        </div>
        <div id="menu" class="menu">
          <nav aria-label="Pages">
            <ul class="nav">
              {entries().map(({ href, label, icon, count, key }) => (
                <li key={href}>
                  <a
                    href={href}
                    aria-current={isAt(href, path) ? "page" : undefined}
                    title={`${label} (g ${key})`}
                  >
                    <Icon name={icon} />
                    <span class="nav-label">{label}</span>
                    {count !== undefined && <span class="count">{count}</span>}
                  </a>
                </li>
              ))}
            </ul>
          </nav>
          <div class="side-foot">
            <Live />
            <Who />
            <ThemeSwitch />
          </div>
        </div>
      </aside>
      <main id="main" tabIndex={-1}>
        <Lost />
        {children}
      </main>
    </div>
  );
}

const isAt = (href: string, path: string): boolean =>
  href === "/"
    ? path === "/"
    : path === href ||
      path.startsWith(`${href}/`) ||
      (href === "/sessions" && path.startsWith("/turns/"));

/** State of the live connection. */
function Live() {
  const { state } = connection.value;
  const words = { live: "Live", connecting: "Connecting", lost: "Disconnected" };
  return (
    <span class={`live live-${state}`} role="status">
      <span class="live-dot" aria-hidden="true" />
      {words[state]}
    </span>
  );
}

/** Banner while the stream is down, with the age of the shown data. */
function Lost() {
  const { state, receivedAtMs } = connection.value;
  if (state !== "lost") return null;
  // Both times are local; reading `now` only triggers the redraw.
  const ageMs = now.value && receivedAtMs !== undefined ? Date.now() - receivedAtMs : undefined;
  return (
    <div class="banner banner-bad">
      <strong role="alert">No connection to the server.</strong>{" "}
      {ageMs !== undefined && `The data was read ${relative(-ageMs)}. `}
      Reconnecting …
    </div>
  );
}

function Who() {
  const principal = me.value;
  if (!principal) return null;
  const isLocal = principal.name === "local operator";
  return (
    <div class="who">
      <div class="who-text">
        <span class="who-name">
          <Text>{principal.name}</Text>
        </span>
        <span class="quiet">
          {principal.role === "viewer" ? "viewer, read-only" : principal.role}
          {principal.tenant !== "default" && (
            <>
              {" "}
              · <Text>{principal.tenant}</Text>
            </>
          )}
        </span>
      </div>
      {!isLocal && (
        <button
          type="button"
          class="icon-button"
          aria-label="Sign out"
          title="Sign out"
          onClick={() => signOut().catch((error) => showToast("bad", asApiError(error).message))}
        >
          <Icon name="out" />
        </button>
      )}
    </div>
  );
}

function ThemeSwitch() {
  const icons = { system: "auto", light: "sun", dark: "moon" } as const;
  return (
    <fieldset class="choices theme">
      <legend class="offscreen">Colours</legend>
      {CHOICES.map((choice) => (
        <button
          type="button"
          key={choice}
          aria-pressed={themeChoice.value === choice}
          aria-label={`${choice} colours`}
          title={`${choice} colours`}
          onClick={() => chooseTheme(choice)}
        >
          <Icon name={icons[choice]} />
        </button>
      ))}
    </fieldset>
  );
}

const SEQUENCE_MAX_MS = 1_200;

/** Keyboard navigation: `g` and a letter open a page. */
function listenForShortcuts(): () => void {
  let beganAtMs = 0;
  function press(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target as Element)) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "g") beganAtMs = Date.now();
    else if (Date.now() - beganAtMs < SEQUENCE_MAX_MS) {
      const entry = entries().find(({ key }) => key === event.key);
      if (entry) go(entry.href);
      beganAtMs = 0;
    }
  }
  document.addEventListener("keydown", press);
  return () => document.removeEventListener("keydown", press);
}

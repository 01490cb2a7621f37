// How the auditor knows that the agent of a node answers, and not that of another node: each answer
// has a token of the agent's ServiceAccount. The kubelet gives each pod its own, for an audience
// that the API server itself does not accept. The API server says which node the pod is on
// (k8s.io/kubernetes@v1.36.3 pkg/serviceaccount/claims.go, since Kubernetes 1.30).
//
// An agent shows its token only to the owner of a client certificate (agent/server.ts). So no agent
// can get that of another: a connection that is redirected to another node ends at its own token.

/** `refused`: the agent rejects the request. `silent`: no answer arrives. */
export interface NoAnswer {
  readonly kind: 'refused' | 'silent';
  readonly why: string;
  /** Whether the answer is too long or malformed. Another one would cost as much again. */
  readonly garbage?: 'too long' | 'malformed';
}

/** The audience of the tokens of agents. */
const audience = 'endpoint-auditor';

/** The header of answers that has the token (agent/server.ts). */
export const identityHeader = 'agent-token';

const nodeName = 'authentication.kubernetes.io/node-name';

type Reviewed =
  | {
      readonly kind: 'allowed';
      readonly owner: {
        readonly username: string;
        readonly extra: Readonly<Record<string, readonly string[]>>;
      };
    }
  | {
      readonly kind: 'unauthenticated' | 'forbidden' | 'unavailable';
      readonly why: string;
    };

/** How an answer fails because of its token; `null` if the agent of the node has answered. */
export type VerifyNode = (node: string, token: string) => Promise<NoAnswer | null>;

/** `review` asks the API server; `account` is the ServiceAccount of the agents. */
export const createNodeVerifier =
  (
    review: (token: string, audience: string) => Promise<Reviewed>,
    account: { readonly namespace: string; readonly name: string },
  ): VerifyNode =>
  async (node, token) => {
    const refuse = (why: string): NoAnswer => ({ kind: 'refused', why });
    if (token === '') return refuse('its answer has no token that proves its node');
    const reviewed = await review(token, audience);
    // The agent may be right: its node is unknown until the API server answers.
    if (reviewed.kind === 'unavailable') return { kind: 'silent', why: reviewed.why };
    if (reviewed.kind !== 'allowed') return refuse(reviewed.why);
    const { username, extra } = reviewed.owner;
    const wanted = `system:serviceaccount:${account.namespace}:${account.name}`;
    if (username !== wanted) return refuse(`its token is of ${username}, not of ${wanted}`);
    const [found] = extra[nodeName] ?? [];
    if (found === node) return null;
    return refuse(`its token is of ${found === undefined ? 'no node' : `node ${found}`}`);
  };

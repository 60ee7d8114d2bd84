import type { DidFetch } from '@sibyl/ucan';
import type { NodePool } from '../nodes/node-pool.js';
import type { Answers } from '../query/answers.js';
import { explainFault } from '../query/explain-fault.js';
import type { Questions } from '../query/questions.js';

interface AskChainParts {
  readonly questions: Questions;
  readonly answers: Answers;
  readonly pool: NodePool;
}

/** A fetch that takes the path of an address to the chain behind this gateway, past the gate. */
export function askChain({ questions, answers, pool }: AskChainParts): DidFetch {
  return async (url) => {
    const { pathname: path, searchParams: query } = new URL(url);
    try {
      const asked = { method: 'GET', path, query, headers: {} };
      const { body } = await answers.answer(await questions.read(asked, () => {}));
      return new Response(new Uint8Array(body));
    } catch (fault) {
      const told = explainFault(fault, { pool, height: undefined, compat: undefined });
      if (!told) throw fault;
      return Response.json({ code: told.code, message: told.message }, { status: told.status });
    }
  };
}

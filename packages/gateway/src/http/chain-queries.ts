import { permit } from '../gating/admission.js';
import type { Caller } from '../gating/caller.js';
import { bodyCost, extraCost } from '../query/query-cost.js';
import { badRequest } from '../query/query-fault.js';
import type { AskedQuestion } from '../query/question.js';
import type { Exchange } from './exchange.js';
import type { GatewayParts } from './gateway-parts.js';
import { readBody } from './read-body.js';
import { ReplySender } from './send-reply.js';

/** Serves the chain's routes. What is known is sent at once, without a promise on the way. */
export class ChainQueries {
  private readonly sender: ReplySender;

  constructor(private readonly parts: GatewayParts) {
    this.sender = new ReplySender(parts.config, parts.outgoing);
  }

  serve(exchange: Exchange, caller: Caller): void | Promise<void> {
    const { method, path, query, request } = exchange;
    const { admission, config, incoming, questions } = this.parts;
    admission.spend(caller, 1);
    const body = async () => {
      const bytes = await readBody(exchange, incoming);
      admission.spendExtra(caller, () => bodyCost(bytes.length));
      return bytes;
    };
    const asked = { method, path, query, headers: request.headers, body };
    if (method === 'OPTIONS' && !config.compat) {
      return exchange.send(204, { Allow: questions.allowed(asked).join(', ') });
    }
    const question = questions.read(asked, (route) => {
      exchange.subject = route.grpcMethod;
      permit(caller, route);
    });
    return question instanceof Promise
      ? question.then((read) => this.answer(exchange, caller, read))
      : this.answer(exchange, caller, question);
  }

  private answer(
    exchange: Exchange,
    caller: Caller,
    question: AskedQuestion,
  ): void | Promise<void> {
    exchange.height = question.height;
    this.parts.admission.spendExtra(caller, () => extraCost(question));
    if (this.isWatch(exchange, question)) return this.watch(exchange, caller, question);
    const onGone = (leave: () => void) => void exchange.response.once('close', leave);
    const reply = this.parts.answers.answer(question, onGone);
    const { successor } = question;
    return reply instanceof Promise
      ? reply.then((answered) => this.sender.send(exchange, answered, successor))
      : this.sender.send(exchange, reply, successor);
  }

  private isWatch({ query, method }: Exchange, { route }: AskedQuestion): boolean {
    if (query.size === 0 || method !== 'GET' || this.parts.config.compat) return false;
    const isWanted = query.has('watch') && !['false', '0'].includes(query.get('watch') ?? '');
    return isWanted && !route.takesQueryKey('watch');
  }

  private watch(exchange: Exchange, caller: Caller, question: AskedQuestion): void {
    if (question.height !== undefined) throw badRequest('what was at a height never changes');
    this.parts.watches.begin(exchange, question, caller);
  }
}

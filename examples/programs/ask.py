"""For a CI job: asks an agent, and succeeds if it says yes."""

import relay

with relay.connect("ci") as me:
    [question] = me.send("Reviewer", "May main be released? Begin with yes or no.", expires=600)
    answers = (each for each in me.messages(timeout=600) if each.reply_to == question.id)
    answer = next(answers, None)
print(answer.body if answer else "No answer within ten minutes.")
raise SystemExit(not (answer and answer.body.lower().startswith("yes")))
